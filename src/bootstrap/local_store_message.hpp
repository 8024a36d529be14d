#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tandem/base/error.hpp>
#include <tandem/base/unique_fd.hpp>
#include <vector>

namespace tandem::bootstrap {

// What a LocalStoreServer and its clients say to each other: one SOCK_SEQPACKET packet a message, at most one
// open file beside it. A client has one request under way and gets one reply for it.

enum class MessageType : std::uint16_t { kHello = 1, kSet, kGet, kAdd, kErase, kSetFile, kGetFile, kReply };

struct MessageHead {
  static constexpr std::uint32_t kMagic = 0x746d5331;
  static constexpr std::int64_t kProtocolVersion = 1;
  static constexpr std::int32_t kOk = -1;
  std::uint32_t magic = kMagic;
  MessageType type = MessageType::kReply;
  std::uint16_t key_bytes = 0;
  std::uint32_t value_bytes = 0;
  std::int32_t status = kOk;  ///< of a reply: kOk or an ErrorCode, its text in the value
  std::uint64_t id = 0;       ///< a reply repeats its request's
  std::int64_t number = 0;    ///< hello: version; get: milliseconds to wait; add: delta or sum
};
static_assert(sizeof(MessageHead) == 32);

struct Message {
  MessageHead head;
  std::string key;
  std::vector<std::byte> value;
  UniqueFd file;
};

inline constexpr std::size_t kMaxKeyBytes = 1024;
inline constexpr std::size_t kMaxValueBytes = std::size_t{64} << 10;

/// Sends one packet; `file` is -1 for none. Never raises SIGPIPE. Errors: kPeerLost when the other end is
/// gone, kDriver otherwise (EAGAIN on a non-blocking socket included).
[[nodiscard]] Result<void> send_message(int socket, MessageHead head, std::string_view key,
                                        std::span<const std::byte> value, int file = -1);

/// Receives one packet; nothing if the socket is non-blocking and has none.
/// Errors: kPeerLost at the end of the connection; kParse for a packet that is no message or has more than
/// one file; kDriver if this process has no file descriptor left for the file. Files that came with a refused
/// packet are closed.
[[nodiscard]] Result<std::optional<Message>> receive_message(int socket);

}  // namespace tandem::bootstrap
