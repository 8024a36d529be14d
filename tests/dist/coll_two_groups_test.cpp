// Groups over the same ranks, whose ops the hosts call in opposite orders, between processes.
#include <gtest/gtest.h>

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
