#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <tandem/trace/events.hpp>
#include <tandem/trace/summary.hpp>
#include <utility>
#include <vector>

#include "trace/intervals.hpp"

namespace tandem::trace {

[[nodiscard]] inline Interval interval_of(const Event& event) {
  return {event.begin_ns, event.end_ns};
}

/// Where all ranks wait for each other.
using Meeting = std::pair<std::int32_t, std::int32_t>;  // call and number

/// When the last rank began each collective that is one event.
using LastBegins = std::map<Meeting, std::int64_t>;
[[nodiscard]] LastBegins last_begins_of(const Trace& trace);

/// The wait that the event is, or begins with: a collective that is one event does nothing but wait until the
/// last rank has begun it.
[[nodiscard]] std::optional<Event> wait_of(const Event& event, const LastBegins& last_begins);

/// What ran when on one rank, of some of its events: the sets that docs/design/timeline.md defines.
class Moments {
 public:
  Moments() = default;
  Moments(const std::vector<const Event*>& events, const LastBegins& last_begins);

  /// Of all but waits.
  [[nodiscard]] const Intervals& busy() const { return busy_; }
  /// Of waits for other ranks.
  [[nodiscard]] const Intervals& waits() const { return waits_; }
  [[nodiscard]] TimeSums sums() const;

 private:
  Intervals busy_;
  Intervals product_;    // of products that do not wait
  Intervals copies_;     // from and to peers
  Intervals crossings_;  // of these, between hosts
  Intervals waits_;      // for other ranks
  Intervals all_waits_;  // also for own streams
};

}  // namespace tandem::trace
