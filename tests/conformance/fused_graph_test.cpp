#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "conformance/fused_graph_problem.hpp"
#include "conformance/fused_harness.hpp"
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
using test::to_text;
using test::value_of;

constexpr DType kType = DType::kBF16;
/// Calls of an op between two waits of the host. Two ops take turns, and the ranks of one GPU share its
/// launch queue: a host that finds it full waits for kernels that wait for other hosts.
constexpr int kNumSlots = 6;

// a changes with every call. In a scatter every rank has an a and a b of its own.
double a_at(const Problem& p, int turn, int rank, std::int64_t row, std::int64_t j) {
  return value_of(1000 + 16 * turn + (p.gathers ? 0 : rank), row * p.k + j, kType);
}
double b_at(const Problem& p, int rank, std::int64_t j, std::int64_t column) {
  return value_of(1 + (p.gathers ? 0 : rank), j * p.n + column, kType);
}

/// One element of the result of call `turn`, and how far rounding may lead away from it.
struct Expected {
  double value = 0;
  double bound = 0;
};
Expected expected_at(const Problem& p, int world, int turn, std::int64_t row, std::int64_t column) {
  Expected all;
  for (int q = 0; q < (p.gathers ? 1 : world); ++q) {
    double part = 0;
    double magnitude = 0;
    for (std::int64_t j = 0; j < p.k; ++j) {
      const double term = a_at(p, turn, q, row, j) * b_at(p, q, j, column);
      part += term;
      magnitude += std::abs(term);
    }
    all.value += part;
    all.bound += (magnitude + 1) * static_cast<double>(p.k + 8) * std::ldexp(1.0, -24);
    if (!p.gathers) all.bound += std::abs(part) * harness::unit_roundoff(kType);  // partials are rounded
  }
  all.bound = 1.02 * (all.bound + harness::unit_roundoff(kType) * (std::abs(all.value) + 1e-3));
  return all;
}

/// One rank's tensors of one op, and its graph.
class GraphedOp {
 public:
  GraphedOp(RankContextOfTest& rank, const Problem& problem)
      : rank_(rank),
        problem_(problem),
        a_(rank.device, sizes_of_a(), kType),
        b_(rank.device, Dims{problem.k, problem.n}, kType) {
    b_.fill([&](std::int64_t idx) {
      return b_at(problem_, rank_.group.rank(), idx / problem_.n, idx % problem_.n);
    });
    as_ = {a_.view()};
    bs_ = {b_.view()};
    const Layout layout = problem.gathers
                              ? output_layout(gather_args(), 0).value()
                              : output_layout(scatter_args(), rank.group.size(), rank.group.rank()).value();
    out_.emplace(rank.device, layout, kType);
    outs_ = {out_->view()};
    for (int slot = 0; slot < kNumSlots; ++slot) {
      inputs_.emplace_back(rank.device, sizes_of_a(), kType);
      results_.emplace_back(rank.device, layout, kType);
    }
  }

  /// Enqueues the op; while the stream records, into the recording.
  Result<void> call() {
    const auto report = problem_.gathers
                            ? fused_all_gather_matmul(gather_args(), rank_.group, rank_.stream)
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
    const Shard mine = own_shard();
    const Dims sizes = sizes_of_a();
    const std::int64_t first_row = problem_.gathers && problem_.dim == 0 ? mine.offset : 0;
    const std::int64_t first_column = problem_.gathers && problem_.dim == 1 ? mine.offset : 0;
    at(inputs_, slot).fill([&](std::int64_t idx) {
      return a_at(problem_, turn, rank_.group.rank(), first_row + idx / sizes[1],
                  first_column + idx % sizes[1]);
    });
    at(results_, slot).poison();
  }

  /// The input goes where the recording reads it, the result away from where it writes it.
  Result<void> enqueue(int slot, bool replays) {
    if (auto done = rank_.stream.copy(at(inputs_, slot).view(), a_.view()); !done) return done;
    if (auto done = replays ? graph_->launch(rank_.stream) : call(); !done) return done;
    return rank_.stream.copy(out_->view(), at(results_, slot).view());
  }

  void check(int slot, int turn, bool replayed, Complaints& complaints) {
    const Shard mine = own_shard();
    Guarded& result = at(results_, slot);
    result.download();
    for (std::int64_t idx = 0; idx < result.view().numel(); ++idx) {
      Dims place = test::position(result.view().sizes, idx);
      if (!problem_.gathers) place[problem_.dim] += mine.offset;
      const Expected need = expected_at(problem_, rank_.group.size(), turn, place[0], place[1]);
      if (std::abs(result.at(idx) - need.value) <= need.bound) continue;
      complaints.add(fmt::format("{}, rank {} of {}, {} in turn {}: {} is {}, need {} +- {}",
                                 to_text(problem_, rank_.group.size()), rank_.group.rank(),
                                 rank_.group.size(), replayed ? "replayed" : "eager", turn, to_string(place),
                                 result.at(idx), need.value, need.bound));
      return;
    }
    out_->download();
    if (!result.guards_are_whole() || !out_->guards_are_whole())
      complaints.add(to_text(problem_, rank_.group.size()) + ": a guard byte was written");
  }

 private:
  static Guarded& at(std::deque<Guarded>& slots, int slot) { return slots[static_cast<std::size_t>(slot)]; }

  /// Of the dim that is gathered or scattered.
  [[nodiscard]] Shard own_shard() const {
    const std::int64_t columns = problem_.gathers ? problem_.k : problem_.n;
    return shard_of(problem_.dim == 0 ? problem_.m : columns, rank_.group.size(), rank_.group.rank());
  }
  [[nodiscard]] Dims sizes_of_a() const {
    Dims sizes = {problem_.m, problem_.k};
    if (problem_.gathers) sizes[problem_.dim] = own_shard().size;
    return sizes;
  }
  [[nodiscard]] AllGatherMatmulArgs gather_args() const {
    return {.a = as_[0],
            .b = bs_,
            .gather_dim = problem_.dim,
            .gather_size = problem_.dim == 0 ? problem_.m : problem_.k,
            .out = outs_,
            .algorithm = problem_.algorithm};
  }
  [[nodiscard]] MatmulReduceScatterArgs scatter_args() const {
    MatmulReduceScatterArgs args{
        .a = as_, .b = bs_, .scatter_dim = problem_.dim, .algorithm = problem_.algorithm};
    if (!outs_.empty()) args.out = outs_[0];
    return args;
  }

  RankContextOfTest& rank_;
  Problem problem_;
  Guarded a_, b_;
  std::optional<Guarded> out_;
  std::deque<Guarded> inputs_, results_;
  std::vector<TensorView> as_, bs_, outs_;
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
