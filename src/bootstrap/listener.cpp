#include "bootstrap/listener.hpp"

#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>

#include "base/format.hpp"
#include "base/random_bytes.hpp"
#include "base/system_refusal.hpp"
#include "base/try.hpp"

namespace tandem::bootstrap {

Result<Listener> Listener::create() {
  TANDEM_ASSIGN(auto directory, PrivateDirectory::create());
  Listener listener(std::move(directory));
  const std::string path = listener.path();
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), path.size());
  listener.socket_ = UniqueFd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  constexpr int kBacklog = 128;
  if (!listener.socket_.valid()) return tl::unexpected(system_refusal("store: no socket", errno));
  if (::bind(listener.socket_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 ||
      ::listen(listener.socket_.get(), kBacklog) != 0) {
    const int code = errno;
    return fail(ErrorCode::kDriver,
                fmt::format("store: cannot listen at '{}': {}", path, std::strerror(code)), code);
  }
  return listener;
}

Result<uid_t> user_of_peer(int socket) {
  ucred peer{};
  socklen_t length = sizeof(peer);
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0)
    return tl::unexpected(system_refusal("store: the user at the other end", errno));
  return peer.uid;
}

Result<std::string> make_token() {
  std::uint8_t bytes[32];
  TANDEM_TRY(random_bytes("store", std::as_writable_bytes(std::span(bytes))));
  return fmt::format("{:02x}", fmt::join(bytes, ""));
}

bool equal_secrets(const std::string& x, const std::string& y) {
  if (x.size() != y.size()) return false;
  unsigned difference = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    difference |= static_cast<unsigned char>(x[i]) ^ static_cast<unsigned char>(y[i]);
  }
  return difference == 0;
}

}  // namespace tandem::bootstrap
