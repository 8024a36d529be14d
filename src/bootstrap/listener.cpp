#include "bootstrap/listener.hpp"

#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <utility>

#include "base/format.hpp"
#include "base/try.hpp"

namespace tandem::bootstrap {

Listener& Listener::operator=(Listener&& other) noexcept {
  if (this != &other) {
    remove();
    socket_ = std::move(other.socket_);
    directory_ = std::exchange(other.directory_, {});
    path_ = std::exchange(other.path_, {});
  }
  return *this;
}

void Listener::remove() {
  if (!path_.empty()) ::unlink(path_.c_str());
  if (!directory_.empty()) ::rmdir(directory_.c_str());
  path_.clear();
  directory_.clear();
}

Result<Listener> Listener::create() {
  std::error_code no_directory;
  const auto temporary = std::filesystem::temp_directory_path(no_directory);
  if (no_directory) {
    return failf(ErrorCode::kUnsupported, "store: no temporary directory ({}): set TMPDIR to one",
                 no_directory.message());
  }
  std::string directory = temporary / "tandem-XXXXXX";
  sockaddr_un address{};
  constexpr std::size_t kLongest = sizeof(address.sun_path) - 1;
  if (const std::size_t length = directory.size() + std::strlen("/store"); length > kLongest) {
    return failf(ErrorCode::kUnsupported,
                 "store: a socket below '{}' would have a path of {} characters, at most {}: set TMPDIR to a "
                 "shorter one",
                 temporary.string(), length, kLongest);
  }
  if (::mkdtemp(directory.data()) == nullptr) {  // mode 0700
    return fail(
        ErrorCode::kDriver,
        fmt::format("store: cannot make a directory below '{}', errno {}: set TMPDIR to a writable one",
                    temporary.string(), errno),
        errno);
  }
  Listener listener;
  listener.directory_ = directory;
  const std::string path = directory + "/store";
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), path.size());
  listener.socket_ = UniqueFd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  constexpr int kBacklog = 128;
  if (!listener.socket_.valid() ||
      ::bind(listener.socket_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 ||
      ::listen(listener.socket_.get(), kBacklog) != 0) {
    return fail(ErrorCode::kDriver, fmt::format("store: cannot listen at '{}', errno {}", path, errno),
                errno);
  }
  listener.path_ = path;
  return listener;
}

Result<std::string> make_token() {
  std::uint8_t bytes[32];
  if (::getrandom(bytes, sizeof(bytes), 0) != sizeof(bytes)) {
    return fail(ErrorCode::kDriver, "store: getrandom gave no bytes", errno);
  }
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
