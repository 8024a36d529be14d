// The collectives between processes: results, a rank that dies inside one, nothing left behind.
#include <gtest/gtest.h>

#include <string>
#include <tandem/base/shard.hpp>
#include <tandem/coll/collectives.hpp>

#include "support/guarded_bytes.hpp"
#include "support/leak_oracle.hpp"
#include "support/process_ranks.hpp"
#include "support/symm_rank.hpp"

namespace tandem::testing {
namespace {

constexpr std::int64_t kTotal = 13;
constexpr std::int64_t kColumns = 3;

// Rank q's row i holds 100 q + i; the mean over ranks of what was gathered is what was gathered.
Result<void> gather_and_scatter(SymmRank& rank) {
  const Shard mine = shard_of(kTotal, rank.size(), rank.rank());
  GuardedBytes shard({mine.size, kColumns}, DType::kF32);
  GuardedBytes all({kTotal, kColumns}, DType::kF32);
  GuardedBytes back({mine.size, kColumns}, DType::kF32);
  auto* values = reinterpret_cast<float*>(shard.data());
  for (std::int64_t i = 0; i < mine.size * kColumns; ++i)
    values[i] = static_cast<float>(100 * rank.rank() + i);
  for (int round = 0; round < 20; ++round) {
    auto done = coll::all_gather({.input = shard.view({mine.size, kColumns}, DType::kF32),
                                  .output = all.view({kTotal, kColumns}, DType::kF32)},
                                 rank.group, *rank.stream);
    if (!done) return done;
    done = coll::reduce_scatter({.input = all.view({kTotal, kColumns}, DType::kF32),
                                 .output = back.view({mine.size, kColumns}, DType::kF32),
                                 .op = coll::ReduceOp::kAvg,
                                 .bias = {}},
                                rank.group, *rank.stream);
    if (!done) return done;
  }
  if (auto done = rank.finish(); !done) return done;
  const auto* results = reinterpret_cast<const float*>(back.data());
  for (std::int64_t i = 0; i < mine.size * kColumns; ++i) {
    EXPECT_EQ(results[i], values[i]) << "rank " << rank.rank() << " of " << rank.size() << ", element " << i;
  }
  EXPECT_TRUE(all.guards_are_whole() && back.guards_are_whole());
  return {};
}

const RankFunction kRounds("coll_rounds", [](RankProcess& self) -> Result<void> {
  const auto group = self.create_group();
  if (!group) return tl::unexpected(group.error());
  auto result = run_as_rank(**group, gather_and_scatter);
  if (!result) self.publish("error", result.error().to_string());
  return result;
});

class CollProcesses : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(World, CollProcesses, ::testing::Values(1, 2, 3, 4, 8),
                         ::testing::PrintToStringParamName());

TEST_P(CollProcesses, GatherAndScatter) {
  const LeakOracle oracle;
  const JobOutcome outcome = run_process_ranks(GetParam(), "coll_rounds");
  EXPECT_TRUE(outcome.status()) << describe(outcome);
  EXPECT_EQ(oracle.leaks(), "");
}

TEST(CollDeath, ARankThatDiesInsideIsNamedByTheOthers) {
  const LeakOracle oracle;
  for (const char* fault : {"barrier:1:7:die", "get:1:5:die", "agree:1:4:die"}) {
    RankOptions options;
    options.config.fault = fault;
    ProcessRanks ranks = start_process_ranks(3, "coll_rounds", {}, options);
    for (const int survivor : {0, 2}) {
      const auto error = ranks.published(survivor, "error");
      ASSERT_TRUE(error) << fault << ": " << error.error().to_string();
      EXPECT_NE(error->find("PeerLost"), std::string::npos) << fault << ": " << *error;
      EXPECT_NE(error->find("rank 1"), std::string::npos) << fault << ": " << *error;
    }
    EXPECT_FALSE(ranks.wait().status()) << fault;
  }
  EXPECT_EQ(oracle.leaks(), "");
}

}  // namespace
}  // namespace tandem::testing
