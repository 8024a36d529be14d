#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <sstream>
#include <string>
#include <tandem/timeline/timeline.hpp>
#include <vector>

#include "conformance/fused_harness.hpp"
#include "trace/lanes.hpp"

// What a timeline notes of a fused op is its program, and the streams pass the steps in the order of the
// schedule.

namespace tandem {
namespace {

using test::Complaints;
using test::Guarded;
using test::RankContextOfTest;

enum class Op : std::uint8_t { kGather, kScatter, kAllReduce };

struct Case {
  Op op;
  Algorithm algorithm;
  int world;
};

void PrintTo(const Case& one, std::ostream* out) {
  constexpr const char* kNames[] = {"gather", "scatter", "all_reduce"};
  *out << kNames[static_cast<int>(one.op)] << ", " << to_string(one.algorithm) << ", " << one.world;
}

Result<OpReport> call(const Case& one, RankContextOfTest& rank, trace::EnqueueTrace& trace) {
  constexpr std::int64_t kRows = 8;
  const std::int64_t own = kRows / one.world;
  const bool is_gather = one.op == Op::kGather;
  const Guarded a(rank.device, Dims{is_gather ? own : kRows, 6}, DType::kF32);
  const Guarded b(rank.device, Dims{6, 5}, DType::kF32);
  const Guarded out(rank.device, Dims{one.op == Op::kScatter ? own : kRows, 5}, DType::kF32);
  const std::vector<TensorView> bs = {b.view()};
  const std::vector<TensorView> outs = {out.view()};
  Result<OpReport> report;
  switch (one.op) {
    case Op::kGather:
      report = fused_all_gather_matmul({.a = a.view(),
                                        .b = bs,
                                        .gather_dim = 0,
                                        .gather_size = kRows,
                                        .out = outs,
                                        .algorithm = one.algorithm,
                                        .trace = &trace},
                                       rank.group, rank.stream);
      break;
    case Op::kScatter:
      report = fused_matmul_reduce_scatter(
          {.a = a.view(), .b = bs[0], .out = outs[0], .algorithm = one.algorithm, .trace = &trace},
          rank.group, rank.stream);
      break;
    case Op::kAllReduce:
      report = fused_matmul_all_reduce(
          {.a = a.view(), .b = bs[0], .out = outs[0], .algorithm = one.algorithm, .trace = &trace},
          rank.group, rank.stream);
      break;
  }
  const auto done = rank.stream.synchronize();
  if (report && !done) return tl::unexpected(done.error());
  return report;
}

using OneEvent = const trace::Event*;

/// In the order of their begins; those that begin together, in the order in which they end.
void sort_by_time(std::vector<OneEvent>& events) {
  std::stable_sort(events.begin(), events.end(), [](OneEvent a, OneEvent b) {
    return std::pair(a->begin_ns, a->end_ns) < std::pair(b->begin_ns, b->end_ns);
  });
}

std::string notations(const std::vector<OneEvent>& events, const trace::RankEvents& rank) {
  std::string text;
  for (const OneEvent event : events) {
    if (event->notation == trace::kNoText) continue;
    if (!text.empty()) text += ' ';
    text += rank.text(event->notation);
  }
  return text;
}

void check_order(const trace::RankEvents& rank, const std::string& schedule, Complaints& complaints) {
  std::vector<OneEvent> all;
  std::map<std::string_view, std::vector<OneEvent>> by_stream;
  for (const trace::Event& event : rank.events) {
    if (event.within >= 0) continue;  // a part of its product
    all.push_back(&event);
    by_stream[rank.text(event.stream)].push_back(&event);
  }
  if (notations(all, rank) != schedule)
    complaints.add(notations(all, rank) + " was noted instead of " + schedule);
  for (auto& [stream, events] : by_stream) {
    const std::string enqueued = notations(events, rank);
    sort_by_time(events);
    if (notations(events, rank) != enqueued)
      complaints.add(notations(events, rank) + " is when they ran, instead of " + enqueued);
    for (std::size_t i = 1; i < events.size(); ++i) {
      if (events[i]->begin_ns < events[i - 1]->end_ns)
        complaints.add(std::string(rank.text(events[i]->step)) + " began before the step before it ended");
    }
  }
}

void check_lanes(const trace::RankEvents& rank, Complaints& complaints) {
  const trace::LaneList lanes = trace::lanes_of(rank);
  std::map<int, std::vector<OneEvent>> by_lane;
  for (std::size_t i = 0; i < rank.events.size(); ++i) by_lane[lanes.of_event[i]].push_back(&rank.events[i]);
  for (auto& [lane, events] : by_lane) {
    sort_by_time(events);
    for (std::size_t i = 1; i < events.size(); ++i) {
      if (events[i]->begin_ns < events[i - 1]->end_ns)
        complaints.add("lane " + lanes.names[static_cast<std::size_t>(lane)] + " overlaps itself");
    }
  }
}

class TimelineSchedules : public ::testing::TestWithParam<Case> {};

TEST_P(TimelineSchedules, AreWhatRan) {
  const Case one = GetParam();
  Complaints complaints;
  test::on_ranks({.ranks = {{DeviceKind::kCpu}, one.world}}, test::quick_config(), complaints,
                 [&](RankContextOfTest& rank) -> Result<void> {
                   auto timeline = Timeline::create(rank.device, 1000);
                   if (!timeline) return tl::unexpected(timeline.error());
                   rank.group.set_timeline(*timeline);
                   trace::EnqueueTrace enqueued;
                   const auto report = call(one, rank, enqueued);
                   if (!report) return tl::unexpected(report.error());
                   const auto noted = (*timeline)->take(rank.group.rank());
                   if (!noted) return tl::unexpected(noted.error());
                   check_order(*noted, enqueued.to_string(), complaints);
                   check_lanes(*noted, complaints);
                   if (noted->num_dropped != 0) complaints.add("events were dropped");
                   const trace::Call& call = noted->calls.at(0);
                   if (noted->text(call.schedule) != enqueued.to_string()) complaints.add("another schedule");
                   if (noted->text(call.algorithm) != to_string(one.algorithm))
                     complaints.add("algorithm " + std::string(noted->text(call.algorithm)));
                   if (!enqueued.op().starts_with(noted->text(call.op)) || noted->text(call.op).empty())
                     complaints.add("op " + std::string(noted->text(call.op)));
                   return {};
                 });
  EXPECT_EQ(complaints.text(), "");
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const Op op : {Op::kGather, Op::kScatter, Op::kAllReduce}) {
    for (const Algorithm algorithm : {Algorithm::kSerial, Algorithm::kPipelined, Algorithm::kNative}) {
      for (const int world : {1, 2, 4}) {
        const bool has_no_peers = world == 1 && algorithm == Algorithm::kNative && op != Op::kGather;
        if (!has_no_peers) all.push_back({op, algorithm, world});
      }
    }
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(All, TimelineSchedules, ::testing::ValuesIn(cases()));

}  // namespace
}  // namespace tandem
