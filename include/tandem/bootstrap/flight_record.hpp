#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <tandem/bootstrap/group.hpp>
#include <vector>

namespace tandem {

/// How far a rank came with a collective call.
enum class CallState : std::uint8_t {
  kEntered,   ///< the host has taken its number
  kAgreed,    ///< all ranks have come to it, and run the same
  kEnqueued,  ///< all of its work is on the rank's stream
  kEnded,     ///< all of its work is done; never known of a GPU
  kRefused    ///< this rank's arguments were refused
};
[[nodiscard]] std::string_view to_string(CallState state);  ///< "agreed"

/// One collective call of one rank. Times are of the host's monotonic clock, in ns; 0: not yet, or not known.
struct CallRecord {
  std::uint64_t sequence = 0;     ///< its number in the group's order
  std::uint64_t fingerprint = 0;  ///< equal on ranks that run the same
  std::string op;                 ///< the begin of what it runs; of a refused call, why
  CallState state = CallState::kEntered;
  std::int64_t entered_ns = 0;
  std::int64_t agreed_ns = 0;
  std::int64_t enqueued_ns = 0;
  std::int64_t ended_ns = 0;
};

/// The last calls of one rank, at most 2048.
struct RankFlightRecord {
  int rank = 0;
  std::int64_t process = 0;       ///< its pid
  bool has_left = false;          ///< it had left the group
  std::vector<CallRecord> calls;  ///< in their order
};

/// The last calls of all ranks of a group, also of those that have died.
struct FlightRecord {
  std::string group;
  std::string error;  ///< the group's; empty: none
  int culprit = -1;   ///< the rank at fault; -1: not known
  std::vector<RankFlightRecord> ranks;
};

/// What the group's control memory holds now. Local; also after an error.
/// Source:  docs/design/flight_recorder.md
[[nodiscard]] FlightRecord flight_record(const Group& group);

/// As JSON, in the form of docs/design/flight_recorder.md.
[[nodiscard]] std::string to_json(const FlightRecord& record);

/// The first call with which a rank is not where the others are.
struct Divergence {
  int rank = 0;
  std::uint64_t sequence = 0;
  std::string op;   ///< what the others run
  std::string why;  ///< "rank 1 runs 'all_gather ...'"
};
/// Nothing if all ranks have come as far as each other.
[[nodiscard]] std::optional<Divergence> first_divergence(const FlightRecord& record);

}  // namespace tandem
