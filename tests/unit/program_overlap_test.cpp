#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <limits>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "unit/program_problems.hpp"
#include "unit/program_runs.hpp"

// Proves the overlap from what was enqueued, without a clock: the traces of all ranks run in virtual time,
// where a copy from a peer takes kLink and a chunk's product kProduct. A rank has one processor, which its
// two streams share.

namespace tandem {
namespace {

using trace::Step;
using trace::StepKind;
using trace::StreamRole;

constexpr double kLink = 1;
constexpr double kProduct = 1;
constexpr double kNap = 1e-3;
using Traces = std::vector<std::vector<Step>>;

/// One thing in a stream's queue. Of two streams that want the processor at once the caller's gets it.
struct Op {
  enum class Kind {
    kBarrier,
    kRecord,
    kWait,
    kGet,
    kPut,
    kTell,
    kAwait,
    kMultiply,
    kSleep,
    kNothing
  } kind = Kind::kNothing;
  int id = 0;        ///< channel of a barrier, number of a mark, rank at the other end of a put
  int chunk = 0;     ///< of a put
  double share = 1;  ///< of all that the rank multiplies for, or copies to, one other rank
};

class Machine {
 public:
  /// `chunks`: so many make what a rank sends to another one.
  explicit Machine(const Traces& traces) : ranks_(traces.size()) {
    for (std::size_t r = 0; r < traces.size(); ++r)
      load(ranks_[r], traces[r], static_cast<int>(r), static_cast<int>(traces.size()));
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

  /// Chunks of sums are told apart from those of partials.
  static constexpr int kOfSums = 1000;

  static void load(Rank& rank, const std::vector<Step>& steps, int number, int world) {
    const bool pushes_sums = std::any_of(steps.begin(), steps.end(),
                                         [](const Step& step) { return step.kind == StepKind::kGiveSum; });
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
          if (step.peer < 0) {  // behind the word of each other rank
            for (int q = 1; q < world; ++q) {
              rank.streams[from].ops.push_back({Op::Kind::kAwait, (number - q + world) % world, step.slot});
              rank.streams[from].ops.push_back({Op::Kind::kGet, 0});
            }
            continue;
          }
          op = {Op::Kind::kGet, 0};
          break;
        case StepKind::kPut:
          op = {Op::Kind::kPut, step.peer, step.slot};
          break;
        case StepKind::kTell:
          op = {Op::Kind::kTell, step.peer, step.slot};
          break;
        case StepKind::kAwait:
          op = {Op::Kind::kAwait, step.peer, step.slot};
          break;
        case StepKind::kGiveSum:
          op = {Op::Kind::kPut, step.peer, kOfSums + step.slot};
          break;
        case StepKind::kTakeSum:
          op = {pushes_sums ? Op::Kind::kAwait : Op::Kind::kGet, step.peer, kOfSums + step.slot};
          break;
        case StepKind::kConsume:
        case StepKind::kConsumeOwn:
        case StepKind::kProduce:
          op = {Op::Kind::kMultiply, 0};
          break;
        case StepKind::kNap:
          op = {Op::Kind::kSleep, 0};
          break;
        case StepKind::kPublish:
        case StepKind::kKeepOwn:
        case StepKind::kCheck:
          break;
      }
      const auto is_alike = [&](const Step& other) {
        return other.kind == step.kind && other.peer == step.peer;
      };
      op.share = 1.0 / static_cast<double>(std::count_if(steps.begin(), steps.end(), is_alike));
      rank.streams[from].ops.push_back(op);
    }
  }

  /// When the head of a queue can start; never while it waits for a mark or for another rank.
  [[nodiscard]] double start_of(const Rank& rank, int stream) const {
    const Queue& queue = rank.streams[stream];
    if (queue.ops.empty()) return kNever;
    const Op& op = queue.ops.front();
    if (op.kind == Op::Kind::kBarrier) return meeting(op.id, stream);
    if (op.kind == Op::Kind::kWait) return std::max(queue.now, rank.marks[static_cast<std::size_t>(op.id)]);
    if (op.kind == Op::Kind::kMultiply) return std::max(queue.now, rank.processor_free);
    if (op.kind == Op::Kind::kAwait) {
      const auto word = words_.find({op.id, static_cast<int>(&rank - ranks_.data()), op.chunk});
      return word == words_.end() ? kNever : std::max(queue.now, word->second);
    }
    return queue.now;
  }

  /// When the last rank gets to the barrier at the head of this stream.
  [[nodiscard]] double meeting(int channel, int stream) const {
    double latest = 0;
    for (const Rank& rank : ranks_) {
      const Queue& queue = rank.streams[stream];
      if (queue.ops.empty() || queue.ops.front().kind != Op::Kind::kBarrier) return kNever;
      if (queue.ops.front().id != channel) return kNever;
      latest = std::max(latest, queue.now);
    }
    return latest;
  }

  /// Runs what can start first. False: nothing can.
  bool step() {
    Rank* first = nullptr;
    int stream = 0;
    double start = kNever;
    for (Rank& rank : ranks_) {
      for (const int candidate : {0, 1}) {
        if (start_of(rank, candidate) >= start) continue;
        start = start_of(rank, candidate);
        first = &rank;
        stream = candidate;
      }
    }
    if (first == nullptr) return false;
    if (first->streams[stream].ops.front().kind == Op::Kind::kBarrier) {
      for (Rank& rank : ranks_) {
        rank.streams[stream].ops.pop_front();
        rank.streams[stream].now = start;
      }
      return true;
    }
    run(*first, first->streams[stream], start);
    return true;
  }

  void run(Rank& rank, Queue& queue, double start) {
    const Op op = queue.ops.front();
    queue.ops.pop_front();
    queue.now = start;
    if (op.kind == Op::Kind::kGet || op.kind == Op::Kind::kPut) queue.now += op.share * kLink;
    if (op.kind == Op::Kind::kPut || op.kind == Op::Kind::kTell)
      words_[{static_cast<int>(&rank - ranks_.data()), op.id, op.chunk}] = queue.now;
    if (op.kind == Op::Kind::kSleep) queue.now += kNap;
    if (op.kind == Op::Kind::kMultiply) rank.processor_free = queue.now += op.share * kProduct;
    if (op.kind == Op::Kind::kRecord) rank.marks[static_cast<std::size_t>(op.id)] = start;
  }

  std::vector<Rank> ranks_;
  std::map<std::tuple<int, int, int>, double> words_;  ///< sender, receiver, chunk: when it came
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

class ProgramOverlap : public testing::TestWithParam<bool> {};

TEST_P(ProgramOverlap, hides_at_least_half_of_the_link) {
  for (const int world : {2, 3, 4, 8}) {
    const double pipelined = Machine(traces_of(GetParam(), world)).makespan();
    const double saved = serial_makespan(world) - pipelined;
    EXPECT_GE(saved, 0.5 * (world - 1) * kLink)
        << "W = " << world << ": serial " << serial_makespan(world) << ", pipelined " << pipelined;
    EXPECT_GE(pipelined, world * kProduct) << "faster than its products on one processor: the model is wrong";
  }
}

TEST_P(ProgramOverlap, hides_nothing_on_one_stream) {
  for (const int world : {2, 3, 4, 8}) {
    Traces traces = traces_of(GetParam(), world);
    for (auto& trace : traces) {
      for (Step& step : trace) step.stream = StreamRole::kCurrent;
      std::erase_if(trace, [](const Step& step) { return step.kind == StepKind::kJoin; });
    }
    EXPECT_NEAR(Machine(traces).makespan(), serial_makespan(world), 2 * kNap) << "W = " << world;
  }
}

TEST_P(ProgramOverlap, runs_to_its_end_and_not_when_a_barrier_is_missing_on_one_rank) {
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

// Peers' parts cross the link while the next ones are made; only the last one's time may show, for it is made
// last of all but the own part.
TEST(ProgramOverlapTold, hides_the_link_behind_the_products) {
  for (const int world : {2, 3, 4, 8}) {
    Traces traces;
    for (const program::Program& program :
         test::programs_of(&fused::build_native_scatter, test::small_told_scatter(world, false, true)))
      traces.push_back(program.traced());
    EXPECT_NEAR(Machine(traces).makespan(), world * kProduct, 1e-9) << "W = " << world;
    for (auto& trace : traces)
      std::erase_if(trace, [](const Step& step) { return step.kind == StepKind::kTell && step.peer == 0; });
    EXPECT_EQ(Machine(traces).makespan(), std::numeric_limits<double>::infinity()) << "nobody tells rank 0";
  }
}

// In one chunk the last part travels beside the own product, and a sum follows. In two, own products wait,
// and half of the link's time may show: the link waits for the first of the parts that are multiplied at
// once.
TEST(ProgramOverlapPushed, hides_all_but_half_of_the_last_part) {
  for (const int world : {2, 3, 4, 8}) {
    for (const int chunks : {1, 2}) {
      Traces traces;
      for (const program::Program& program :
           test::programs_of(&fused::build_pipelined_scatter, test::small_pushed_scatter(world, chunks)))
        traces.push_back(program.traced());
      const double shown = chunks == 2 && world > 3 ? kLink / 2 : 0;
      EXPECT_NEAR(Machine(traces).makespan(), world * kProduct + shown, 1e-9)
          << "W = " << world << " in " << chunks << " chunks";
    }
  }
}

// The link carries partials and sums, and takes longer than the products do. The products of all parts but
// one are hidden behind it, or, in one round, of all parts but two.
TEST(ProgramOverlapAllReduce, hides_products_and_link_behind_each_other) {
  for (const int world : {2, 3, 4, 8}) {
    for (const int parts : {1, 2, 4}) {
      for (const bool pushes : {false, true}) {
        Traces traces;
        for (const program::Program& program : test::programs_of(
                 &fused::build_pipelined_scatter,
                 pushes ? test::small_pushed_all_reduce(world, parts) : test::small_all_reduce(world, parts)))
          traces.push_back(program.traced());
        const double link = 2 * (world - 1) * kLink;
        const double hidden = world * kProduct + link - Machine(traces).makespan();
        EXPECT_GE(hidden, (world - (parts > 1 ? 1 : 2)) * kProduct - 1e-9)
            << "W = " << world << (pushes ? ", chunks " : ", rounds ") << parts;
      }
    }
  }
}

// What the nap is for: where nothing orders the two streams' first products, the wrong one may come first.
TEST(ProgramOverlapNap, makes_the_side_stream_start_first) {
  Traces traces = traces_of(false, 2);
  EXPECT_LT(Machine(traces).makespan(), serial_makespan(2));
  for (auto& trace : traces) {
    std::erase_if(trace, [](const Step& step) { return step.kind == StepKind::kNap; });
  }
  EXPECT_EQ(Machine(traces).makespan(), serial_makespan(2));
}

INSTANTIATE_TEST_SUITE_P(Schedules, ProgramOverlap, testing::Bool(), [](const auto& schedule) {
  return std::string(schedule.param ? "gather" : "scatter");
});

}  // namespace
}  // namespace tandem
