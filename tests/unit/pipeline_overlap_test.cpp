#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <limits>
#include <string>
#include <vector>

#include "unit/pipeline_runs.hpp"

// Proves the overlap from what was enqueued, without a clock: the traces of all ranks run in virtual time, where a
// copy from a peer takes kLink and a chunk's product kProduct. A rank has one processor, which its two streams share.

namespace tandem {
namespace {

using trace::Step;
using trace::StepKind;
using trace::StreamRole;

constexpr double kLink = 1;
constexpr double kProduct = 1;
using Traces = std::vector<std::vector<Step>>;

/// One thing in a stream's queue.
struct Op {
  enum class Kind { kBarrier, kRecord, kWait, kGet, kMultiply, kNothing } kind = Kind::kNothing;
  int id = 0;  ///< channel of a barrier, number of a mark
};

class Machine {
 public:
  explicit Machine(const Traces& traces) : ranks_(traces.size()) {
    for (std::size_t r = 0; r < traces.size(); ++r) load(ranks_[r], traces[r]);
  }

  /// When the last stream of the last rank is done; infinite if they block each other.
  double makespan() {
    while (step()) {
    }
    double end = 0;
    for (const Rank& rank : ranks_) {
      for (const Queue& queue : rank.streams) end = std::max(end, queue.ops.empty() ? queue.now : kNever);
    }
    return end;
  }

 private:
  static constexpr double kNever = std::numeric_limits<double>::infinity();
  struct Queue {
    std::deque<Op> ops;
    double now = 0;
  };
  struct Rank {
    Queue streams[2];
    std::vector<double> marks;
    double processor_free = 0;
  };

  static void load(Rank& rank, const std::vector<Step>& steps) {
    for (const Step& step : steps) {
      const int from = step.stream == StreamRole::kCurrent ? 0 : 1;
      Op op;
      switch (step.kind) {
        case StepKind::kJoin:
          op = {Op::Kind::kRecord, static_cast<int>(rank.marks.size())};
          rank.streams[1 - from].ops.push_back({Op::Kind::kWait, op.id});
          rank.marks.push_back(kNever);
          break;
        case StepKind::kBarrier:
          op = {Op::Kind::kBarrier, step.channel};
          break;
        case StepKind::kGet:
          op = {Op::Kind::kGet, 0};
          break;
        case StepKind::kConsume:
        case StepKind::kConsumeOwn:
        case StepKind::kProduce:
          op = {Op::Kind::kMultiply, 0};
          break;
        case StepKind::kPublish:
        case StepKind::kKeepOwn:
        case StepKind::kNap:
          break;
      }
      rank.streams[from].ops.push_back(op);
    }
  }

  /// When the head of a queue could start; never while it waits for a mark or a barrier.
  static double start_of(const Rank& rank, const Queue& queue) {
    if (queue.ops.empty()) return kNever;
    const Op& op = queue.ops.front();
    if (op.kind == Op::Kind::kBarrier) return kNever;
    if (op.kind == Op::Kind::kWait) return std::max(queue.now, rank.marks[static_cast<std::size_t>(op.id)]);
    if (op.kind == Op::Kind::kMultiply) return std::max(queue.now, rank.processor_free);
    return queue.now;
  }

  /// Runs what can start first; if nothing can, a barrier at which all ranks stand. False: nothing is left to run.
  bool step() {
    Rank* best = nullptr;
    Queue* queue = nullptr;
    double start = kNever;
    for (Rank& rank : ranks_) {
      for (Queue& candidate : rank.streams) {
        if (start_of(rank, candidate) >= start) continue;
        start = start_of(rank, candidate);
        best = &rank;
        queue = &candidate;
      }
    }
    if (best == nullptr) return meet(0) || meet(1);
    const Op op = queue->ops.front();
    queue->ops.pop_front();
    queue->now = start;
    if (op.kind == Op::Kind::kGet) queue->now += kLink;
    if (op.kind == Op::Kind::kMultiply) best->processor_free = queue->now += kProduct;
    if (op.kind == Op::Kind::kRecord) best->marks[static_cast<std::size_t>(op.id)] = start;
    return true;
  }

  bool meet(int stream) {
    double latest = 0;
    for (const Rank& rank : ranks_) {
      const Queue& queue = rank.streams[stream];
      if (queue.ops.empty() || queue.ops.front().kind != Op::Kind::kBarrier) return false;
      if (queue.ops.front().id != ranks_.front().streams[stream].ops.front().id) return false;
      latest = std::max(latest, queue.now);
    }
    for (Rank& rank : ranks_) {
      rank.streams[stream].ops.pop_front();
      rank.streams[stream].now = latest;
    }
    return true;
  }

  std::vector<Rank> ranks_;
};

Traces traces_of(bool gather, int world) {
  Traces traces;
  for (int rank = 0; rank < world; ++rank) {
    const auto recorded = gather ? test::record_gather(world, rank) : test::record_scatter(world, rank);
    const auto steps = recorded.trace.steps();
    traces.emplace_back(steps.begin(), steps.end());
  }
  return traces;
}

/// The collective, then a product as large as all chunks (or the other way round).
double serial_makespan(int world) {
  return (world - 1) * kLink + world * kProduct;
}

class PipelineOverlap : public testing::TestWithParam<bool> {};

TEST_P(PipelineOverlap, hides_at_least_half_of_the_link) {
  for (const int world : {2, 3, 4, 8}) {
    const double pipelined = Machine(traces_of(GetParam(), world)).makespan();
    const double saved = serial_makespan(world) - pipelined;
    EXPECT_GE(saved, 0.5 * (world - 1) * kLink)
        << "W = " << world << ": serial " << serial_makespan(world) << ", pipelined " << pipelined;
    EXPECT_GE(pipelined, world * kProduct) << "faster than its products on one processor: the model is wrong";
  }
}

TEST_P(PipelineOverlap, hides_nothing_on_one_stream) {
  for (const int world : {2, 3, 4, 8}) {
    Traces traces = traces_of(GetParam(), world);
    for (auto& trace : traces) {
      for (Step& step : trace) step.stream = StreamRole::kCurrent;
      std::erase_if(trace, [](const Step& step) { return step.kind == StepKind::kJoin; });
    }
    EXPECT_EQ(Machine(traces).makespan(), serial_makespan(world)) << "W = " << world;
  }
}

TEST_P(PipelineOverlap, runs_to_its_end_and_not_when_a_barrier_is_missing_on_one_rank) {
  for (const int world : {2, 3, 4, 8}) {
    Traces traces = traces_of(GetParam(), world);
    EXPECT_LT(Machine(traces).makespan(), std::numeric_limits<double>::infinity());
    auto& last = traces.back();
    last.erase(std::find_if(last.rbegin(), last.rend(),
                            [](const Step& step) { return step.kind == StepKind::kBarrier; })
                   .base() -
               1);
    EXPECT_EQ(Machine(traces).makespan(), std::numeric_limits<double>::infinity()) << "W = " << world;
  }
}

INSTANTIATE_TEST_SUITE_P(Schedules, PipelineOverlap, testing::Bool(),
                         [](const auto& schedule) { return std::string(schedule.param ? "gather" : "scatter"); });

}  // namespace
}  // namespace tandem
