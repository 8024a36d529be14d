#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <tandem/base/error.hpp>
#include <unordered_map>
#include <vector>

namespace tandem::trace {

/// What a step does with the time of its lane.
enum class Category : std::uint8_t { kProduct, kCopy, kSum, kWait, kCheck, kOther };
/// "product", "copy", "sum", "wait", "check", "other".
[[nodiscard]] std::string_view to_string(Category category);

/// Whom a wait waits for.
enum class WaitFor : std::uint8_t {
  kNothing,  ///< it is no wait
  kAll,      ///< all ranks, at Event::meeting
  kPeer,     ///< Event::peer
  kOwn,      ///< another stream of the rank itself
};

/// Which way a copy goes.
enum class Direction : std::uint8_t { kNone, kFrom, kTo };

/// The number of a text of RankEvents.
using TextId = std::int32_t;
inline constexpr TextId kNoText = -1;

/// One step of one call on one rank. A member that does not apply is -1, or 0 bytes.
/// Units:   ns of the host's CLOCK_MONOTONIC.
struct Event {
  std::int64_t begin_ns = 0;
  std::int64_t end_ns = 0;
  std::int64_t bytes = 0;  ///< that the step copies
  std::int32_t call = -1;  ///< Call::number
  std::int32_t peer = -1;
  std::int32_t chunk = -1;
  std::int32_t meeting = -1;  ///< of WaitFor::kAll: the same number on every rank
  std::int32_t within = -1;   ///< of a kernel's wait: the event of its product, by its place in the list
  TextId step = kNoText;      ///< "bk: get published a of rank 1 -> gathered a[4:8]"
  TextId notation = kNoText;  ///< "bk:get1", see docs/design/schedules.md
  TextId stream = kNoText;    ///< "cur"
  Category category = Category::kOther;
  Direction direction = Direction::kNone;
  WaitFor wait_for = WaitFor::kNothing;
  bool is_between_hosts = false;  ///< of a copy: its peer is on another host
};

/// One call of an op. Calls have the same numbers on all ranks of a group.
struct Call {
  std::int32_t number = 0;
  TextId op = kNoText;         ///< "all_gather_matmul [4096,3584,8192] bf16"
  TextId algorithm = kNoText;  ///< "pipelined"
  TextId schedule = kNoText;   ///< its steps in short notation
};

/// What one rank did.
class RankEvents {
 public:
  int rank = 0;
  std::vector<Call> calls;
  std::vector<Event> events;
  std::int32_t num_calls = 0;         ///< that were numbered, also those without room
  std::int64_t num_dropped = 0;       ///< events that found no room
  std::int64_t num_unseen_calls = 0;  ///< calls that a recording of the caller's took up
  std::int64_t uncertainty_ns = 0;    ///< of the clock, against those of other ranks
  std::string clock;                  ///< "CLOCK_MONOTONIC"
  std::string device;                 ///< Device::description()
  std::string backend;                ///< "cpu"

  /// The number of a text; equal texts have one.
  TextId add_text(std::string_view text);
  /// Empty for kNoText.
  [[nodiscard]] std::string_view text(TextId id) const {
    return id == kNoText ? std::string_view() : texts_[static_cast<std::size_t>(id)];
  }
  /// Appends what the rank did later. Its calls get numbers behind those that are here.
  void append(const RankEvents& later);

  /// For a way to another process of the same program.
  [[nodiscard]] std::vector<std::byte> to_bytes() const;
  /// Errors:  kParse for bytes that to_bytes() does not make.
  [[nodiscard]] static Result<RankEvents> from_bytes(std::span<const std::byte> bytes);

 private:
  std::vector<std::string> texts_;
  std::unordered_map<std::string, TextId> ids_;
};

/// What all ranks of a group did, in rank order.
using Trace = std::vector<RankEvents>;

}  // namespace tandem::trace
