#include <gtest/gtest.h>

#include <chrono>
#include <deque>
#include <initializer_list>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "conformance/fused_harness.hpp"
#include "harness/operands.hpp"
#include "harness/problem.hpp"
#include "harness/reference.hpp"

// Many ops one behind the other, under skew: streams are held for random times so that ranks and streams meet
// in every order. All ops of one problem must give the bits of the first; on GPUs, by tandem's own products.

namespace tandem {
namespace {

using test::Complaints;
using test::Guarded;
using test::JobCase;
using test::RankContextOfTest;

harness::Problem problem_of(harness::Op op, int world, int dim) {
  const bool gathers = op == harness::Op::kAllGatherMatmul;
  return {.op = op,
          .a = {10, gathers ? 6 : 4 * world},
          .n = {gathers ? 8 * world : 6},
          .dtype = DType::kBF16,
          .dim = dim,
          .ranks = world};
}

/// One rank's operands of a problem, and outputs for each round.
struct Rounds {
  Rounds(Device& device, const Group& group, int num_rounds, const harness::Problem& whole)
      : problem(whole),
        rank(group.rank()),
        operands(whole, harness::GeneratedTensors(whole), rank, {device, harness::HostImage::kAlways}) {
    Dims sizes = whole.result_sizes(0);
    const harness::Window window = window_of_result(whole, 0, rank);
    sizes[window.dim] = window.shard.size;
    for (int round = 0; round < num_rounds; ++round)
      views.push_back(outputs.emplace_back(device, sizes, whole.dtype).view());
  }

  /// Every round has the bits of the first, which is right.
  void compare(Complaints& complaints) const {
    const auto name = [&](std::size_t round) {
      return "--problem " + to_line(problem) + ", rank " + std::to_string(rank) + ", round " +
             std::to_string(round);
    };
    for (const Guarded& output : outputs) output.download();
    harness::Wrong wrong;
    const harness::Reference reference(problem, harness::GeneratedTensors(problem));
    reference.compare(0, window_of_result(problem, 0, rank), outputs.front().host(), wrong);
    complaints.add(name(0), outputs.front(), wrong);
    for (std::size_t round = 1; round < outputs.size(); ++round) {
      if (outputs[round].bytes() != outputs.front().bytes()) return complaints.add(name(round) + " differs");
    }
  }

  harness::Problem problem;
  int rank;
  harness::RankOperands operands;
  std::deque<Guarded> outputs;
  std::vector<TensorView> views;
};

/// All ops on one rank.
class Workbench {
 public:
  Workbench(Device& device, Group& group, int num_rounds, int dim)
      : group_(group),
        gathers_(device, group, num_rounds, problem_of(harness::Op::kAllGatherMatmul, group.size(), dim)),
        scatters_(device, group, num_rounds,
                  problem_of(harness::Op::kMatmulReduceScatter, group.size(), dim)),
        all_reduces_(device, group, num_rounds, problem_of(harness::Op::kMatmulAllReduce, group.size(), 0)) {}

  Result<void> gather(int round, Algorithm algorithm, Stream& stream) {
    const auto report = fused_all_gather_matmul(gather_args(round, algorithm), group_, stream);
    if (!report) return tl::unexpected(report.error());
    return {};
  }
  /// What the first gather would run, told beforehand, is what it reports.
  Result<void> plan_and_gather(Algorithm algorithm, Stream& stream, Complaints& complaints) {
    const AllGatherMatmulArgs args = gather_args(0, algorithm);
    const auto planned = plan(args, group_, stream);
    if (!planned) return tl::unexpected(planned.error());
    if (!can_run(args, group_, stream)) complaints.add("can_run says no");
    const auto ran = fused_all_gather_matmul(args, group_, stream);
    if (!ran) return tl::unexpected(ran.error());
    if (ran->algorithm != planned->algorithm || ran->reason != planned->reason || ran->key != planned->key) {
      complaints.add("planned " + std::string(planned->reason) + ", ran " + std::string(ran->reason));
    }
    return {};
  }
  [[nodiscard]] bool takes_native(Stream& stream) const {
    return can_run(gather_args(0, Algorithm::kNative), group_, stream).ok;
  }
  Result<void> scatter(int round, Algorithm algorithm, Stream& stream) {
    MatmulReduceScatterArgs args = scatters_.operands.scatter_args();
    args.out = scatters_.views[static_cast<std::size_t>(round)];
    args.algorithm = algorithm;
    const auto report = fused_matmul_reduce_scatter(args, group_, stream);
    if (!report) return tl::unexpected(report.error());
    return {};
  }

  Result<void> all_reduce(int round, Algorithm algorithm, Stream& stream) {
    MatmulAllReduceArgs args = all_reduces_.operands.all_reduce_args();
    args.out = all_reduces_.views[static_cast<std::size_t>(round)];
    args.algorithm = algorithm;
    const auto report = fused_matmul_all_reduce(args, group_, stream);
    if (!report) return tl::unexpected(report.error());
    return {};
  }

  void compare_rounds(Complaints& complaints) const {
    compare_gathers(complaints);
    scatters_.compare(complaints);
    all_reduces_.compare(complaints);
  }
  void compare_gathers(Complaints& complaints) const { gathers_.compare(complaints); }

 private:
  [[nodiscard]] AllGatherMatmulArgs gather_args(int round, Algorithm algorithm) const {
    AllGatherMatmulArgs args = gathers_.operands.gather_args();
    args.out = std::span(gathers_.views).subspan(static_cast<std::size_t>(round), 1);
    args.algorithm = algorithm;
    return args;
  }

  Group& group_;
  Rounds gathers_, scatters_, all_reduces_;
};

Result<void> hold_a_moment(std::mt19937& random, Stream& stream) {
  return stream.sleep(std::chrono::microseconds(random() % 400));
}

/// After round `round` (from 0) of `num_ops` ops each on `streams`. On a GPU the ranks share its launch
/// queue, and a host that finds it full waits for kernels that wait for other hosts: so it stays short there.
Result<void> keep_queue_short(int round, int num_ops, std::initializer_list<Stream*> streams) {
  constexpr int kMostOps = 16;
  for (Stream* stream : streams) {
    if (stream->device().id().kind == DeviceKind::kCpu || (round + 1) % (kMostOps / num_ops) != 0) continue;
    if (auto done = stream->synchronize(); !done) return done;
  }
  return {};
}

class FusedOrder : public ::testing::TestWithParam<JobCase> {};

TEST_P(FusedOrder, a_hundred_alternating_ops_under_skew) {
  Complaints complaints;
  test::on_ranks(GetParam(), test::quick_config(), complaints, [&](RankContextOfTest& rank) -> Result<void> {
    std::mt19937 random(static_cast<unsigned>(rank.group.rank()));
    for (const int dim : {0, 1}) {
      constexpr int kRounds = 50;
      Workbench bench(rank.device, rank.group, kRounds, dim);
      for (int round = 0; round < kRounds; ++round) {
        const Algorithm algorithm = round % 3 == 0 ? Algorithm::kSerial : Algorithm::kPipelined;
        const bool by_native = round % 2 == 1 && bench.takes_native(rank.stream);
        if (auto ok = hold_a_moment(random, rank.stream); !ok) return ok;
        if (auto ok = bench.gather(round, by_native ? Algorithm::kNative : algorithm, rank.stream); !ok)
          return ok;
        if (auto ok = hold_a_moment(random, rank.stream); !ok) return ok;
        if (auto ok = bench.scatter(round, algorithm, rank.stream); !ok) return ok;
        if (auto ok = hold_a_moment(random, rank.stream); !ok) return ok;
        if (auto ok = bench.all_reduce(round, algorithm, rank.stream); !ok) return ok;
        if (auto ok = keep_queue_short(round, 3, {&rank.stream}); !ok) return ok;
      }
      if (auto done = rank.stream.synchronize(); !done) return done;
      bench.compare_rounds(complaints);
    }
    return test::check_pads(rank, complaints);
  });
  EXPECT_EQ(complaints.text(), "");
}

TEST_P(FusedOrder, a_thousand_native_gathers_without_a_look_at_the_device) {
  if (!GetParam().is_on_cpu()) GTEST_SKIP() << "fewer rows than a GPU's kernels are for";
  Complaints complaints;
  test::on_ranks(GetParam(), test::quick_config(), complaints, [&](RankContextOfTest& rank) -> Result<void> {
    std::mt19937 random(static_cast<unsigned>(200 + rank.group.rank()));
    constexpr int kRounds = 1000;
    Workbench bench(rank.device, rank.group, kRounds, 0);
    for (int round = 0; round < kRounds; ++round) {
      if (random() % 8 == 0) {
        if (auto ok = hold_a_moment(random, rank.stream); !ok) return ok;
      }
      if (auto ok = bench.gather(round, Algorithm::kNative, rank.stream); !ok) return ok;
    }
    if (auto done = rank.stream.synchronize(); !done) return done;
    bench.compare_gathers(complaints);
    return {};
  });
  EXPECT_EQ(complaints.text(), "");
}

TEST_P(FusedOrder, two_streams_of_one_group) {
  Complaints complaints;
  test::on_ranks(GetParam(), test::quick_config(), complaints, [&](RankContextOfTest& rank) -> Result<void> {
    std::mt19937 random(static_cast<unsigned>(100 + rank.group.rank()));
    auto other = rank.device.create_stream();
    if (!other) return tl::unexpected(other.error());
    constexpr int kRounds = 20;
    Workbench bench(rank.device, rank.group, kRounds, 0);
    for (int round = 0; round < kRounds; ++round) {
      Stream& first = round % 2 == 0 ? rank.stream : **other;
      Stream& second = round % 3 == 0 ? rank.stream : **other;
      if (auto ok = hold_a_moment(random, first); !ok) return ok;
      const bool by_native = round % 4 < 2 && bench.takes_native(first);
      if (auto ok = bench.gather(round, by_native ? Algorithm::kNative : Algorithm::kPipelined, first); !ok)
        return ok;
      if (auto ok = bench.scatter(round, Algorithm::kPipelined, second); !ok) return ok;
      if (auto ok = bench.all_reduce(round, Algorithm::kPipelined, first); !ok) return ok;
      if (auto ok = keep_queue_short(round, 3, {&rank.stream, other->get()}); !ok) return ok;
    }
    if (auto done = rank.stream.synchronize(); !done) return done;
    if (auto done = (*other)->synchronize(); !done) return done;
    bench.compare_rounds(complaints);
    return test::check_pads(rank, complaints);
  });
  EXPECT_EQ(complaints.text(), "");
}

// Two groups of 2 overlap in one of 3 ranks at least.
class FusedOverlappingGroups : public ::testing::TestWithParam<JobCase> {};

TEST_P(FusedOverlappingGroups, work_side_by_side) {
  Complaints complaints;
  test::on_ranks(GetParam(), test::quick_config(), complaints, [&](RankContextOfTest& rank) -> Result<void> {
    const int last = rank.group.size() - 1;
    std::vector<std::unique_ptr<Group>> groups;
    for (const auto& [name, members] : {std::pair{"low", std::vector<int>{0, 1}}, {"high", {1, last}}}) {
      const bool is_member = rank.group.rank() == members[0] || rank.group.rank() == members[1];
      if (!is_member) continue;
      auto group = rank.group.subgroup(members, name);
      if (!group) return tl::unexpected(group.error());
      groups.push_back(*std::move(group));
    }
    constexpr int kRounds = 10;
    std::deque<Workbench> benches;
    for (const auto& group : groups) benches.emplace_back(rank.device, *group, kRounds, 0);
    for (int round = 0; round < kRounds; ++round) {
      for (Workbench& bench : benches) {
        if (auto ok = bench.gather(round, Algorithm::kPipelined, rank.stream); !ok) return ok;
        if (auto ok = bench.scatter(round, Algorithm::kPipelined, rank.stream); !ok) return ok;
        if (auto ok = bench.all_reduce(round, Algorithm::kPipelined, rank.stream); !ok) return ok;
      }
      if (auto ok = keep_queue_short(round, 6, {&rank.stream}); !ok) return ok;
    }
    if (auto done = rank.stream.synchronize(); !done) return done;
    for (Workbench& bench : benches) bench.compare_rounds(complaints);
    return {};
  });
  EXPECT_EQ(complaints.text(), "");
}

// Each group has streams of its own: what one waits for never stands before the other's work. Where ranks
// share a GPU the hosts agree on every call, so they use the groups in one order.
TEST_P(FusedOrder, two_groups_of_one_device_in_any_order) {
  const testing::Placement& placement = GetParam().ranks.placement;
  const bool shares_gpu = placement.kind == DeviceKind::kCuda && !placement.one_gpu_each;
  Complaints complaints;
  test::on_ranks(GetParam(), test::quick_config(), complaints, [&](RankContextOfTest& rank) -> Result<void> {
    constexpr int kRounds = 20;
    std::vector<std::unique_ptr<Group>> groups;
    std::vector<std::unique_ptr<Stream>> streams;
    std::deque<Workbench> benches;
    for (const char* name : {"one", "two"}) {
      auto group = test::subgroup_of_all(rank.group, name);
      if (!group) return tl::unexpected(group.error());
      groups.push_back(*std::move(group));
      auto stream = rank.device.create_stream();
      if (!stream) return tl::unexpected(stream.error());
      streams.push_back(*std::move(stream));
      benches.emplace_back(rank.device, *groups.back(), kRounds, 0);
      // The first op of a problem is agreed on by the hosts, so all meet it in one order.
      if (auto ok = benches.back().gather(0, Algorithm::kPipelined, *streams.back()); !ok) return ok;
    }
    for (int round = 1; round < kRounds; ++round) {
      for (int i = 0; i < 2; ++i) {
        const auto which = static_cast<std::size_t>(((shares_gpu ? 0 : rank.group.rank()) + i) % 2);
        if (auto ok = benches[which].gather(round, Algorithm::kPipelined, *streams[which]); !ok) return ok;
      }
      if (auto ok = keep_queue_short(round, 2, {streams[0].get(), streams[1].get()}); !ok) return ok;
    }
    for (std::size_t which = 0; which < 2; ++which) {
      if (auto done = streams[which]->synchronize(); !done) return done;
      benches[which].compare_gathers(complaints);
    }
    return {};
  });
  EXPECT_EQ(complaints.text(), "");
}

TEST_P(FusedOrder, a_plan_says_what_will_run) {
  Complaints complaints;
  test::on_ranks(GetParam(), test::quick_config(), complaints, [&](RankContextOfTest& rank) -> Result<void> {
    Workbench bench(rank.device, rank.group, 1, 0);
    for (const Algorithm algorithm :
         {Algorithm::kAuto, Algorithm::kSerial, Algorithm::kPipelined, Algorithm::kNative}) {
      if (algorithm == Algorithm::kNative && !bench.takes_native(rank.stream)) continue;
      if (auto ok = bench.plan_and_gather(algorithm, rank.stream, complaints); !ok) return ok;
    }
    return rank.stream.synchronize();
  });
  EXPECT_EQ(complaints.text(), "");
}

TEST_P(FusedOrder, a_group_that_ends_finishes_its_queued_ops) {
  Complaints complaints;
  test::on_ranks(GetParam(), test::quick_config(), complaints, [&](RankContextOfTest& rank) -> Result<void> {
    for (const Algorithm algorithm : {Algorithm::kSerial, Algorithm::kPipelined, Algorithm::kNative}) {
      auto group = test::subgroup_of_all(rank.group, "brief");
      if (!group) return tl::unexpected(group.error());
      constexpr int kRounds = 3;
      Workbench bench(rank.device, **group, kRounds, 0);
      const bool is_native = algorithm == Algorithm::kNative;
      if (is_native && !bench.takes_native(rank.stream)) continue;
      for (int round = 0; round < kRounds; ++round) {
        if (auto ok = bench.gather(round, algorithm, rank.stream); !ok) return ok;
        const Algorithm of_sums = is_native ? Algorithm::kPipelined : algorithm;
        if (auto ok = bench.scatter(round, of_sums, rank.stream); !ok) return ok;
        if (auto ok = bench.all_reduce(round, of_sums, rank.stream); !ok) return ok;
        if (auto ok = rank.stream.sleep(std::chrono::milliseconds(10)); !ok) return ok;
      }
      group->reset();
      if (auto done = rank.stream.synchronize(); !done) return done;
      bench.compare_rounds(complaints);
    }
    return {};
  });
  EXPECT_EQ(complaints.text(), "");
}

INSTANTIATE_TEST_SUITE_P(Ranks, FusedOverlappingGroups, ::testing::ValuesIn(test::exact_cases({3, 4})),
                         test::job_name);
INSTANTIATE_TEST_SUITE_P(Ranks, FusedOrder, ::testing::ValuesIn(test::exact_cases({1, 2, 3, 4})),
                         test::job_name);

}  // namespace
}  // namespace tandem
