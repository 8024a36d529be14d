#pragma once

#include <tandem/trace/events.hpp>
#include <tandem/trace/summary.hpp>
#include <vector>

#include "trace/intervals.hpp"
#include "trace/moments.hpp"

namespace tandem::trace {

/// A call, from its begin on the first rank to its end on the last one.
struct TimedCall {
  Call call;  ///< with texts of the trace's first rank
  Interval span;
};

/// The calls of the first rank that have events on any rank, in the order of their numbers.
[[nodiscard]] std::vector<TimedCall> timed_calls(const Trace& trace);

/// What these calls sum up to, by op and algorithm.
[[nodiscard]] std::vector<OpSummary> op_summaries(const Trace& trace, const LastBegins& last_begins);

}  // namespace tandem::trace
