#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <tandem/bootstrap/local_store.hpp>
#include <thread>

#include "base/format.hpp"
#include "base/home_process.hpp"
#include "base/interrupts.hpp"
#include "base/system_refusal.hpp"
#include "base/try.hpp"
#include "base/uninterrupted.hpp"
#include "bootstrap/listener.hpp"
#include "bootstrap/local_store_message.hpp"
#include "bootstrap/memory_store.hpp"

namespace tandem {
namespace {

using bootstrap::Message;
using bootstrap::MessageHead;
using bootstrap::MessageType;

/// First come, first served: a thread that polls for a key can not starve one that wants to set it.
class FairMutex {
 public:
  void lock() {
    std::unique_lock guard(mutex_);
    const std::uint64_t mine = next_++;
    changed_.wait(guard, [&] { return serving_ == mine; });
  }
  void unlock() {
    const std::lock_guard guard(mutex_);
    ++serving_;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t next_ = 0;
  std::uint64_t serving_ = 0;
};

class LocalStoreClient final : public Store {
 public:
  explicit LocalStoreClient(UniqueFd socket) : socket_(std::move(socket)) {}

  Result<void> greet(const std::string& token) {
    TANDEM_TRY(request({.type = MessageType::kHello, .number = MessageHead::kProtocolVersion}, token, {}));
    return {};
  }

  Result<void> set(std::string_view key, std::span<const std::byte> value) override {
    TANDEM_TRY(request({.type = MessageType::kSet}, key, value));
    return {};
  }
  Result<Bytes> get(std::string_view key, Deadline deadline) override {
    TANDEM_ASSIGN(Message reply, request_in_slices(MessageType::kGet, key, deadline));
    return std::move(reply.value);
  }
  Result<std::int64_t> add(std::string_view key, std::int64_t delta) override {
    TANDEM_ASSIGN(const Message reply, request({.type = MessageType::kAdd, .number = delta}, key, {}));
    return reply.head.number;
  }
  Result<void> erase(std::string_view key) override {
    TANDEM_TRY(request({.type = MessageType::kErase}, key, {}));
    return {};
  }
  bool carries_files() const override { return true; }
  Result<void> set_file(std::string_view key, int fd) override {
    TANDEM_TRY(request({.type = MessageType::kSetFile}, key, {}, fd));
    return {};
  }
  Result<UniqueFd> get_file(std::string_view key, Deadline deadline) override {
    TANDEM_ASSIGN(Message reply, request_in_slices(MessageType::kGetFile, key, deadline));
    if (!reply.file.valid())
      return failf(ErrorCode::kParse, "store: no file came with the reply for '{}'", key);
    return std::move(reply.file);
  }

 private:
  /// The server holds a get for at most one slice, so that other threads' requests get their turn in between.
  Result<Message> request_in_slices(MessageType type, std::string_view key, Deadline deadline) {
    constexpr std::chrono::milliseconds kSlice{20};
    const auto started = Deadline::Clock::now();
    for (;;) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline.remaining());
      auto reply = request({.type = type, .number = std::min(left, kSlice).count()}, key, {});
      if (reply || reply.error().code() != ErrorCode::kTimeout || is_broken_) return reply;
      if (is_interrupted()) return tl::unexpected<Error>(bootstrap::interrupted(key));
      if (!deadline.expired()) continue;
      const auto waited =
          std::chrono::duration_cast<std::chrono::milliseconds>(Deadline::Clock::now() - started);
      return failf(ErrorCode::kTimeout, "store: key '{}' was not set within {} ms", key, waited.count());
    }
  }

  Result<Message> request(MessageHead head, std::string_view key, std::span<const std::byte> value,
                          int file = -1) {
    TANDEM_TRY(home_.check("the connection to a store"));
    const std::lock_guard turn(turn_);
    if (is_broken_) return fail(ErrorCode::kPeerLost, "store: the connection to its server is lost");
    head.id = ++last_id_;
    // A request that could not be sent does no harm; all else leaves the two ends out of step.
    if (auto sent = bootstrap::send_message(socket_.get(), head, key, value, file); !sent) {
      is_broken_ = sent.error().code() == ErrorCode::kPeerLost;
      return tl::unexpected(std::move(sent).error());
    }
    auto reply = receive_reply(head.id, key);
    is_broken_ = !reply;
    TANDEM_TRY(reply);
    if (reply->head.status == MessageHead::kOk) return reply;
    const auto largest = static_cast<std::int32_t>(ErrorCode::kInternal);
    const auto code = reply->head.status < 0 || reply->head.status > largest ? largest : reply->head.status;
    return fail(static_cast<ErrorCode>(code),
                std::string(reinterpret_cast<const char*>(reply->value.data()), reply->value.size()));
  }

  Result<Message> receive_reply(std::uint64_t id, std::string_view key) {
    const auto deadline = Deadline::after(kReplyTimeout);
    for (;;) {
      pollfd entry{socket_.get(), POLLIN, 0};
      const int ready = outlasting_shortage([&] {
        const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline.remaining());
        return ::poll(&entry, 1, static_cast<int>(left.count()));
      });
      if (ready < 0) return tl::unexpected(system_refusal("store: poll failed", errno));
      if (ready == 0) {
        return failf(ErrorCode::kTimeout, "store: its server did not answer about '{}' within {} ms", key,
                     kReplyTimeout.count());
      }
      TANDEM_ASSIGN(auto message, bootstrap::receive_message(socket_.get()));
      if (!message) continue;
      if (message->head.id != id || message->head.type != MessageType::kReply) {
        return failf(ErrorCode::kParse, "store: reply {} to request {}", message->head.id, id);
      }
      return *std::move(message);
    }
  }

  static constexpr std::chrono::milliseconds kReplyTimeout{10'000};
  const HomeProcess home_;
  UniqueFd socket_;
  FairMutex turn_;
  std::uint64_t last_id_ = 0;
  std::atomic<bool> is_broken_{false};
};

Result<UniqueFd> connect_to(const std::string& path, Deadline deadline) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) {
    return failf(ErrorCode::kInvalidArgument, "store: the socket path '{}' has {} characters, at most {}",
                 path, path.size(), sizeof(address.sun_path) - 1);
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  UniqueFd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.valid()) return tl::unexpected(system_refusal("store: no socket", errno));
  while (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    if (errno == EINTR) continue;
    if (errno != EAGAIN) {  // EAGAIN: too many clients wait to be accepted
      const int code = errno;
      return fail(ErrorCode::kDriver,
                  fmt::format("store: cannot connect to '{}': {}", path, std::strerror(code)), code);
    }
    if (is_interrupted())
      return failf(ErrorCode::kPeerLost, "store: connecting to '{}' was interrupted", path);
    if (deadline.expired())
      return failf(ErrorCode::kTimeout, "store: '{}' does not accept connections", path);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  TANDEM_ASSIGN(const uid_t user, bootstrap::user_of_peer(socket.get()));
  if (user != ::geteuid()) {
    return failf(ErrorCode::kInvalidArgument,
                 "store: the server at '{}' is of user {}, this process of user {}: run both as one user",
                 path, user, ::geteuid());
  }
  return socket;
}

Result<std::shared_ptr<Store>> greet(UniqueFd socket, const std::string& token) {
  const std::shared_ptr<LocalStoreClient> client(new LocalStoreClient(std::move(socket)), DeleteAtHome());
  TANDEM_TRY(client->greet(token));
  return client;
}

}  // namespace

Result<std::shared_ptr<Store>> open_local_store(UniqueFd connection) {
  return greet(std::move(connection), "");
}

Result<std::shared_ptr<Store>> open_local_store(const LocalStoreAddress& address, Deadline deadline) {
  const auto started = Deadline::Clock::now();
  for (;;) {
    TANDEM_ASSIGN(UniqueFd socket, connect_to(address.path, deadline));
    auto client = greet(std::move(socket), address.token);
    // Where too many are silent the server closes some. It may have taken this client for one of them.
    if (client || client.error().code() != ErrorCode::kPeerLost) return client;
    if (is_interrupted()) return client;
    if (deadline.expired()) {
      const auto waited =
          std::chrono::duration_cast<std::chrono::milliseconds>(Deadline::Clock::now() - started);
      return failf(
          ErrorCode::kTimeout,
          "store: '{}' closed each connection for {} ms before it answered the greeting: too many other "
          "processes connect to it",
          address.path, waited.count());
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

}  // namespace tandem
