#include "trace/calls.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <unordered_map>
#include <utility>

namespace tandem::trace {
namespace {

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

void add(TimeSums& all, const TimeSums& more) {
  all.busy_us += more.busy_us;
  all.product_us += more.product_us;
  all.communication_us += more.communication_us;
  all.hidden_us += more.hidden_us;
  all.between_hosts_us += more.between_hosts_us;
  all.between_hosts_hidden_us += more.between_hosts_hidden_us;
  all.waiting_us += more.waiting_us;
}

/// Which calls are of one op and algorithm.
struct CallsByOp {
  std::vector<OpSummary> ops;                            // without sums of time
  std::unordered_map<std::int32_t, std::size_t> places;  // in ops, by the call's number
};

CallsByOp calls_by_op(const Trace& trace) {
  CallsByOp by_op;
  std::map<std::pair<TextId, TextId>, std::size_t> known;
  std::vector<std::vector<double>> took_us;
  for (const TimedCall& timed : timed_calls(trace)) {
    const Call& call = timed.call;
    const auto [op, is_first] = known.try_emplace({call.op, call.algorithm}, by_op.ops.size());
    if (is_first) {
      OpSummary& one = by_op.ops.emplace_back();
      one.op = trace.front().text(call.op);
      one.algorithm = trace.front().text(call.algorithm);
      took_us.emplace_back();
    }
    took_us[op->second].push_back(us(timed.span.length()));
    by_op.places[call.number] = op->second;
  }
  for (std::size_t i = 0; i < took_us.size(); ++i) {
    OpSummary& one = by_op.ops[i];
    one.num_calls = static_cast<std::int64_t>(took_us[i].size());
    one.mean_us =
        std::accumulate(took_us[i].begin(), took_us[i].end(), 0.0) / static_cast<double>(one.num_calls);
    one.median_us = median(std::move(took_us[i]));
  }
  return by_op;
}

}  // namespace

std::vector<TimedCall> timed_calls(const Trace& trace) {
  std::unordered_map<std::int32_t, Interval> spans;
  for (const RankEvents& rank : trace) {
    for (const Event& event : rank.events) {
      const Interval interval = interval_of(event);
      const auto [known, is_first] = spans.try_emplace(event.call, interval);
      if (is_first) continue;
      known->second = {std::min(known->second.begin, interval.begin),
                       std::max(known->second.end, interval.end)};
    }
  }
  std::vector<TimedCall> calls;
  if (trace.empty()) return calls;
  for (const Call& call : trace.front().calls) {
    if (const auto span = spans.find(call.number); span != spans.end()) calls.push_back({call, span->second});
  }
  return calls;
}

std::vector<OpSummary> op_summaries(const Trace& trace, const LastBegins& last_begins) {
  CallsByOp calls = calls_by_op(trace);
  for (const RankEvents& rank : trace) {
    std::vector<std::vector<const Event*>> events(calls.ops.size());
    for (const Event& event : rank.events) {
      if (const auto place = calls.places.find(event.call); place != calls.places.end())
        events[place->second].push_back(&event);
    }
    for (std::size_t i = 0; i < events.size(); ++i) add(calls.ops[i], Moments(events[i], last_begins).sums());
  }
  return std::move(calls.ops);
}

}  // namespace tandem::trace
