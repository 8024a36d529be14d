#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "conformance/fused_graph_problem.hpp"
#include "conformance/fused_harness.hpp"
#include "harness/operands.hpp"
#include "harness/reference.hpp"

// Both fused ops recorded into graphs: replays among eager calls, on one stream and with one workspace, while
// the inputs change in the buffers of the recording. Every result against float64. A backend without graphs
// is skipped.

namespace tandem {
namespace {

using test::Complaints;
using test::Guarded;
using test::JobCase;
using test::Problem;
using test::RankContextOfTest;

constexpr DType kType = DType::kBF16;
/// Calls of an op between two waits of the host. Two ops take turns, and the ranks of one GPU share its
/// launch queue: a host that finds it full waits for kernels that wait for other hosts.
constexpr int kNumSlots = 6;

/// The tensors of call `turn`: a changes with every call.
class TurnSource : public harness::OperandSource {
 public:
  TurnSource(const harness::Problem& problem, int turn) : others_(problem), a_(with_seed(problem, turn)) {}
  void read(const harness::Operand& operand, const harness::Window& window,
            const TensorView& to) const override {
    (operand.kind == harness::OperandKind::kA ? a_ : others_).read(operand, window, to);
  }

 private:
  static harness::Problem with_seed(harness::Problem problem, int turn) {
    problem.seed = static_cast<std::uint64_t>(1000 + turn);
    return problem;
  }
  harness::GeneratedTensors others_, a_;
};

/// One rank's tensors of one op, and its graph.
class GraphedOp {
 public:
  GraphedOp(RankContextOfTest& rank, const Problem& problem)
      : rank_(rank),
        problem_(whole_of(problem, rank.group.size())),
        operands_(problem_, TurnSource(problem_, 0), rank.group.rank(),
                  {rank.device, harness::HostImage::kAlways}) {
    const Layout layout = gathers()
                              ? output_layout(gather_args(), 0).value()
                              : output_layout(scatter_args(), rank.group.size(), rank.group.rank()).value();
    out_.emplace(rank.device, layout, kType);
    outs_ = {out_->view()};
    for (int slot = 0; slot < kNumSlots; ++slot) {
      inputs_.emplace_back(rank.device, operands_.a().view().sizes, kType);
      results_.emplace_back(rank.device, layout, kType);
    }
  }

  /// Enqueues the op; while the stream records, into the recording.
  Result<void> call() {
    const auto report = gathers() ? fused_all_gather_matmul(gather_args(), rank_.group, rank_.stream)
                                  : fused_matmul_reduce_scatter(scatter_args(), rank_.group, rank_.stream);
    if (!report) return tl::unexpected(report.error());
    return {};
  }

  /// Behind an eager call, since no memory is made while a stream records.
  Result<void> record() {
    if (auto done = call().and_then([&] { return rank_.stream.synchronize(); }); !done) return done;
    if (auto begun = rank_.stream.begin_capture(); !begun) return begun;
    const auto called = call();
    auto graph = rank_.stream.end_capture();
    if (!called) return called;
    if (!graph) return tl::unexpected(graph.error());
    graph_ = *std::move(graph);
    return {};
  }

  /// Makes the input of call `turn`, while no work is enqueued.
  void fill_slot(int slot, int turn) {
    const Guarded& input = at(inputs_, slot);
    TurnSource(problem_, turn)
        .read({harness::OperandKind::kA}, window_of_a(problem_, rank_.group.rank()), input.host());
    input.upload();
    at(results_, slot).poison();
  }

  /// The input goes where the recording reads it, the result away from where it writes it.
  Result<void> enqueue(int slot, bool replays) {
    if (auto done = rank_.stream.copy(at(inputs_, slot).view(), operands_.a().view()); !done) return done;
    if (auto done = replays ? graph_->launch(rank_.stream) : call(); !done) return done;
    return rank_.stream.copy(out_->view(), at(results_, slot).view());
  }

  void check(int slot, int turn, bool replayed, Complaints& complaints) {
    const Guarded& result = at(results_, slot);
    result.download();
    out_->download();
    harness::Wrong wrong;
    harness::Reference(problem_, TurnSource(problem_, turn))
        .compare(0, window_of_result(problem_, 0, rank_.group.rank()), result.host(), wrong);
    if (!out_->guards_are_whole()) wrong.add("a byte beside the recorded out was written");
    complaints.add(fmt::format("--problem {}, rank {}, {} in turn {}", to_line(problem_), rank_.group.rank(),
                               replayed ? "replayed" : "eager", turn),
                   result, wrong);
  }

 private:
  static Guarded& at(std::deque<Guarded>& slots, int slot) { return slots[static_cast<std::size_t>(slot)]; }
  [[nodiscard]] bool gathers() const { return problem_.op == harness::Op::kAllGatherMatmul; }
  [[nodiscard]] AllGatherMatmulArgs gather_args() const {
    AllGatherMatmulArgs args = operands_.gather_args();
    args.out = outs_;
    args.algorithm = problem_.algorithm;
    return args;
  }
  [[nodiscard]] MatmulReduceScatterArgs scatter_args() const {
    MatmulReduceScatterArgs args = operands_.scatter_args();
    if (!outs_.empty()) args.out = outs_[0];
    args.algorithm = problem_.algorithm;
    return args;
  }

  RankContextOfTest& rank_;
  harness::Problem problem_;
  harness::RankOperands operands_;
  std::optional<Guarded> out_;
  std::deque<Guarded> inputs_, results_;
  std::vector<TensorView> outs_;
  std::unique_ptr<Graph> graph_;
};

/// Every third call of an op is eager, each op's at another time.
bool is_replayed(int turn, std::size_t op) {
  return (turn + static_cast<int>(op)) % 3 != 2;
}

/// 128 replays of each op and half as many eager calls; the ops take turns.
Result<void> replay_among_eager_calls(RankContextOfTest& rank, std::deque<GraphedOp>& ops,
                                      Complaints& complaints) {
  // Making a graph may wait for what runs on the GPU: all ranks have theirs before one is launched.
  if (auto met = rank.group.all_gather({}, "graphs are made"); !met) return tl::unexpected(met.error());
  constexpr int kNumTurns = 192;
  for (int first = 0; first < kNumTurns; first += kNumSlots) {
    const int num_slots = std::min(kNumSlots, kNumTurns - first);
    for (int slot = 0; slot < num_slots; ++slot) {
      for (GraphedOp& op : ops) op.fill_slot(slot, first + slot);
    }
    for (int slot = 0; slot < num_slots; ++slot) {
      for (std::size_t i = 0; i < ops.size(); ++i) {
        if (auto done = ops[i].enqueue(slot, is_replayed(first + slot, i)); !done) return done;
      }
    }
    if (auto done = rank.stream.synchronize(); !done) return done;
    for (int slot = 0; slot < num_slots; ++slot) {
      for (std::size_t i = 0; i < ops.size(); ++i) {
        ops[i].check(slot, first + slot, is_replayed(first + slot, i), complaints);
      }
    }
  }
  return {};
}

class FusedGraph : public ::testing::TestWithParam<JobCase> {
 protected:
  void SetUp() override {
    const auto device = open_device(GetParam().ranks.placement.device_of(0), test::quick_config()).value();
    const auto stream = device->create_stream().value();
    const auto begun = stream->begin_capture();
    if (begun) {
      ASSERT_TRUE(stream->end_capture());
      return;
    }
    ASSERT_EQ(begun.error().code(), ErrorCode::kUnsupported) << begun.error().to_string();
    GTEST_SKIP() << begun.error().text();
  }
};

TEST_P(FusedGraph, replays_keep_their_place_among_eager_calls) {
  Complaints complaints;
  test::on_ranks(GetParam(), test::quick_config(), complaints, [&](RankContextOfTest& rank) -> Result<void> {
    for (const Algorithm algorithm : {Algorithm::kSerial, Algorithm::kPipelined}) {
      for (const int dim : {0, 1}) {
        std::deque<GraphedOp> ops;
        for (const bool gathers : {true, false}) {
          ops.emplace_back(rank, Problem{.gathers = gathers, .algorithm = algorithm, .dim = dim});
          if (auto done = ops.back().record(); !done) return done;
        }
        if (auto done = replay_among_eager_calls(rank, ops, complaints); !done) return done;
      }
    }
    return test::check_pads(rank, complaints);
  });
  EXPECT_EQ(complaints.text(), "");
}

// Kernels count their calls themselves. Few rows share tiles, many have them by owners.
TEST_P(FusedGraph, replays_of_native_scatters_keep_their_place) {
  const testing::RankCase& ranks = GetParam().ranks;
  if (ranks.placement.kind == DeviceKind::kCpu || ranks.size == 1) GTEST_SKIP() << "nothing is given away";
  Complaints complaints;
  test::on_ranks(GetParam(), test::quick_config(), complaints, [&](RankContextOfTest& rank) -> Result<void> {
    std::deque<GraphedOp> ops;
    for (const std::int64_t m : {10, 520}) {
      ops.emplace_back(rank, Problem{.gathers = false, .algorithm = Algorithm::kNative, .m = m});
      if (auto done = ops.back().record(); !done) return done;
    }
    if (auto done = replay_among_eager_calls(rank, ops, complaints); !done) return done;
    return test::check_pads(rank, complaints);
  });
  EXPECT_EQ(complaints.text(), "");
}

// Workspace and scratch memory grow after the recording: replays use the old, eager calls the new.
TEST_P(FusedGraph, replays_outlive_the_growth_of_memory) {
  Complaints complaints;
  test::on_ranks(GetParam(), test::quick_config(), complaints, [&](RankContextOfTest& rank) -> Result<void> {
    std::deque<GraphedOp> ops;
    for (const bool gathers : {true, false}) {
      ops.emplace_back(rank, Problem{.gathers = gathers});
      if (auto done = ops.back().record(); !done) return done;
    }
    for (const bool gathers : {true, false}) {
      GraphedOp large(rank, {.gathers = gathers, .m = 8192});
      if (auto done = large.call().and_then([&] { return rank.stream.synchronize(); }); !done) return done;
    }
    if (auto done = replay_among_eager_calls(rank, ops, complaints); !done) return done;
    return test::check_pads(rank, complaints);
  });
  EXPECT_EQ(complaints.text(), "");
}

INSTANTIATE_TEST_SUITE_P(Ranks, FusedGraph, ::testing::ValuesIn(test::all_cases({1, 2, 4})), test::job_name);

}  // namespace
}  // namespace tandem
