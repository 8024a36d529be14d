#include "bootstrap/local_store_message.hpp"

#include <sys/socket.h>
#include <sys/uio.h>

#include <cerrno>
#include <cstring>

#include "base/format.hpp"
#include "base/system_refusal.hpp"
#include "base/try.hpp"
#include "base/uninterrupted.hpp"

namespace tandem::bootstrap {
namespace {

constexpr std::size_t kMaxFiles = 8;  // room to receive, and so to close, files that nobody asked for

Result<void> transmit(int socket, const msghdr& message) {
  // A packet goes whole or not at all.
  if (outlasting_shortage([&] { return ::sendmsg(socket, &message, MSG_NOSIGNAL); }) >= 0) return {};
  if (errno == EPIPE || errno == ECONNRESET || errno == ENOTCONN) {
    return fail(ErrorCode::kPeerLost, "store: the other end of the connection is gone", errno);
  }
  if (errno == EAGAIN)
    return fail(ErrorCode::kDriver, "store: the other end does not read what it was sent", EAGAIN);
  return tl::unexpected(system_refusal("store: sendmsg failed", errno));
}

/// Takes ownership of every file that came along.
std::vector<UniqueFd> take_files(msghdr& message) {
  std::vector<UniqueFd> files;
  for (cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr; part = CMSG_NXTHDR(&message, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(part) + i * sizeof(int), sizeof(int));
      files.emplace_back(fd);
    }
  }
  return files;
}

Result<Message> parse(std::span<const std::byte> packet, std::vector<UniqueFd> files) {
  Message message;
  if (packet.size() < sizeof(MessageHead)) {
    return failf(ErrorCode::kParse, "store: a packet of {} bytes, need at least {}", packet.size(),
                 sizeof(MessageHead));
  }
  std::memcpy(&message.head, packet.data(), sizeof(MessageHead));
  const MessageHead& head = message.head;
  const std::size_t key_bytes = head.key_bytes;
  const std::size_t value_bytes = head.value_bytes;
  if (head.magic != MessageHead::kMagic || key_bytes > kMaxKeyBytes || value_bytes > kMaxValueBytes ||
      packet.size() != sizeof(MessageHead) + key_bytes + value_bytes) {
    return failf(ErrorCode::kParse, "store: a packet of {} bytes with magic {:x}, key {} and value {} bytes",
                 packet.size(), head.magic, key_bytes, value_bytes);
  }
  if (files.size() > 1)
    return failf(ErrorCode::kParse, "store: {} files in one message, at most one", files.size());
  packet = packet.subspan(sizeof(MessageHead));
  message.key.assign(reinterpret_cast<const char*>(packet.data()), key_bytes);
  packet = packet.subspan(key_bytes);
  message.value.assign(packet.begin(), packet.end());
  if (!files.empty()) message.file = std::move(files.front());
  return message;
}

}  // namespace

Result<void> send_message(int socket, MessageHead head, std::string_view key,
                          std::span<const std::byte> value, int file) {
  if (key.size() > kMaxKeyBytes || value.size() > kMaxValueBytes) {
    return failf(ErrorCode::kInvalidArgument,
                 "store: a key of {} bytes and a value of {} bytes, at most {} and {}", key.size(),
                 value.size(), kMaxKeyBytes, kMaxValueBytes);
  }
  head.key_bytes = static_cast<std::uint16_t>(key.size());
  head.value_bytes = static_cast<std::uint32_t>(value.size());
  iovec parts[3] = {{&head, sizeof(head)},
                    {const_cast<char*>(key.data()), key.size()},
                    {const_cast<std::byte*>(value.data()), value.size()}};
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = 3;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  if (file >= 0) {
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    cmsghdr* const part = CMSG_FIRSTHDR(&message);
    part->cmsg_level = SOL_SOCKET;
    part->cmsg_type = SCM_RIGHTS;
    part->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(part), &file, sizeof(int));
  }
  return transmit(socket, message);
}

Result<std::optional<Message>> receive_message(int socket) {
  std::vector<std::byte> packet(sizeof(MessageHead) + kMaxKeyBytes + kMaxValueBytes);
  iovec part{packet.data(), packet.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kMaxFiles)] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  const ssize_t count = outlasting_shortage([&] { return ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC); });
  if (count < 0) {
    if (errno == EAGAIN || errno == EWOULDBLOCK) return std::nullopt;
    if (errno == ECONNRESET)
      return fail(ErrorCode::kPeerLost, "store: the other end of the connection is gone", errno);
    return tl::unexpected(system_refusal("store: recvmsg failed", errno));
  }
  std::vector<UniqueFd> files = take_files(message);
  if (count == 0) return fail(ErrorCode::kPeerLost, "store: the other end has closed the connection");
  if ((message.msg_flags & MSG_TRUNC) != 0)
    return failf(ErrorCode::kParse, "store: a packet is longer than {} bytes", packet.size());
  if ((message.msg_flags & MSG_CTRUNC) != 0) {
    // More files than there is room for; or this process has no file descriptor left for one.
    if (!files.empty()) return fail(ErrorCode::kParse, "store: more than one file in one message");
    return tl::unexpected(
        system_refusal("store: the file that came with a message cannot be opened", EMFILE));
  }
  TANDEM_ASSIGN(Message parsed,
                parse(std::span(packet).first(static_cast<std::size_t>(count)), std::move(files)));
  return std::optional(std::move(parsed));
}

}  // namespace tandem::bootstrap
