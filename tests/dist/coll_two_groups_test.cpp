// Groups over the same ranks, whose ops the hosts call in opposite orders, between processes.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include "support/leak_oracle.hpp"
#include "support/opposite_order.hpp"
#include "support/process_ranks.hpp"

namespace tandem::testing {
namespace {

MixedOp op_of(const RankProcess& self) {
  return static_cast<MixedOp>(std::stoi(self.arguments.at(0)));
}

const RankFunction kOpposite("two_groups_opposite", [](RankProcess& self) -> Result<void> {
  const auto group = self.create_group();
  if (!group) return tl::unexpected(group.error());
  return run_as_rank(**group, [&](SymmRank& rank) { return call_in_opposite_orders(rank, op_of(self), 14); });
});

const RankFunction kRing("groups_in_a_ring", [](RankProcess& self) -> Result<void> {
  const auto group = self.create_group();
  if (!group) return tl::unexpected(group.error());
  return run_as_rank(**group, [&](SymmRank& rank) { return call_round_a_ring(rank, op_of(self)); });
});

// Rank 1 may write files of 1 MiB at most, or all may; the call needs more.
Result<void> gather_without_memory(RankProcess& self, SymmRank& rank) {
  const bool all = self.arguments.at(0) == "all";
  const rlimit limit{1 << 20, 1 << 20};
  if (all || rank.rank() == 1) setrlimit(RLIMIT_FSIZE, &limit);
  MixedCall large(MixedOp::kGather, 1 << 18, rank.group);
  const auto called = large.enqueue(rank.group, *rank.stream);
  if (all || rank.rank() == 1) {
    expect_error(called, ErrorCode::kOutOfMemory, "file size limit");
  } else {
    if (called) {
      expect_error(rank.finish(), ErrorCode::kMismatch, "rank 1 refused #1: OutOfMemory");
    } else {
      expect_error(called, ErrorCode::kMismatch, "rank 1 refused #1: OutOfMemory");
    }
    EXPECT_TRUE(large.is_untouched());
  }
  if (!all) return {};
  MixedGroup group{&rank.group, rank.device->create_stream().value()};
  if (auto done = group.call(MixedOp::kGather, 10); !done) return done;
  return group.finish();
}

const RankFunction kWithoutMemory("gather_without_memory", [](RankProcess& self) -> Result<void> {
  signal(SIGXFSZ, SIG_IGN);
  const auto group = self.create_group();
  if (!group) return tl::unexpected(group.error());
  return run_as_rank(**group, [&](SymmRank& rank) { return gather_without_memory(self, rank); });
});

TEST(PlacedMemory, ThatIsNotThereIsRefusedOnAllRanks) {
  const JobOutcome outcome = run_process_ranks(3, "gather_without_memory", {"one"});
  EXPECT_TRUE(outcome.status()) << describe(outcome);
}

TEST(PlacedMemory, ThatNobodyHasLeavesTheGroupAlone) {
  const JobOutcome outcome = run_process_ranks(3, "gather_without_memory", {"all"});
  EXPECT_TRUE(outcome.status()) << describe(outcome);
}

class TwoGroupsOfProcesses : public ::testing::TestWithParam<MixedOp> {};
INSTANTIATE_TEST_SUITE_P(Of, TwoGroupsOfProcesses, ::testing::ValuesIn(kMixedOps), name_of_op);

RankOptions impatient() {
  RankOptions options;
  options.config.op_timeout = options.config.rendezvous_timeout = std::chrono::milliseconds(20'000);
  return options;
}

TEST_P(TwoGroupsOfProcesses, InOppositeOrdersWhileShapesGrow) {
  const LeakOracle oracle;
  const std::string op = std::to_string(static_cast<int>(GetParam()));
  for (const int world : {2, 3, 4}) {
    const JobOutcome outcome = run_process_ranks(world, "two_groups_opposite", {op}, impatient());
    EXPECT_TRUE(outcome.status()) << world << " ranks: " << describe(outcome);
  }
  EXPECT_EQ(oracle.leaks(), "");
}

TEST_P(TwoGroupsOfProcesses, RoundARing) {
  const std::string op = std::to_string(static_cast<int>(GetParam()));
  const JobOutcome outcome = run_process_ranks(3, "groups_in_a_ring", {op}, impatient());
  EXPECT_TRUE(outcome.status()) << describe(outcome);
}

}  // namespace
}  // namespace tandem::testing
