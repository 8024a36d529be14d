// Collectives on two streams of thread ranks, groups side by side: the thread sanitizer must have nothing to
// say.
#include <gtest/gtest.h>

#include <array>
#include <tandem/coll/collectives.hpp>

#include "support/guarded_bytes.hpp"
#include "support/symm_rank.hpp"

namespace tandem::testing {
namespace {

Result<void> rounds(Group& group, Stream& first, Stream& second) {
  const int world = group.size();
  GuardedBytes shard({4}, DType::kF32);
  GuardedBytes all({4 * world}, DType::kF32);
  GuardedBytes sum({4}, DType::kF32);
  for (int i = 0; i < 4; ++i) reinterpret_cast<float*>(shard.data())[i] = static_cast<float>(group.rank());
  for (int round = 0; round < 15; ++round) {
    Stream& stream = round % 2 == 0 ? first : second;
    Stream& next = round % 2 == 0 ? second : first;
    auto done =
        coll::all_gather({shard.view({4}, DType::kF32), all.view({4 * world}, DType::kF32)}, group, stream);
    if (!done) return done;
    done = coll::reduce_scatter({.input = all.view({4 * world}, DType::kF32),
                                 .output = shard.view({4}, DType::kF32),
                                 .op = coll::ReduceOp::kAvg,
                                 .bias = {}},
                                group, next);
    if (!done) return done;
    done = coll::all_reduce({.input = shard.view({4}, DType::kF32),
                             .output = sum.view({4}, DType::kF32),
                             .op = coll::ReduceOp::kSum,
                             .bias = {}},
                            group, next);
    if (!done) return done;
  }
  if (auto done = first.synchronize(); !done) return done;
  if (auto done = second.synchronize(); !done) return done;
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(reinterpret_cast<float*>(shard.data())[i], static_cast<float>(group.rank()));
    EXPECT_EQ(reinterpret_cast<float*>(sum.data())[i], static_cast<float>(world * (world - 1)) / 2);
  }
  return {};
}

TEST(CollRace, CollectivesOnTwoStreams) {
  for (const int world : {2, 4}) {
    expect_ok(run_symm_ranks(world, {}, [](SymmRank& rank) -> Result<void> {
      auto other = rank.device->create_stream().value();
      return rounds(rank.group, *rank.stream, *other);
    }));
  }
}

TEST(CollRace, OverlappingGroupsOnStreamsOfTheirOwn) {
  expect_ok(run_symm_ranks(3, {}, [](SymmRank& rank) -> Result<void> {
    // {0, 1} and {1, 2}: rank 1 is in both.
    const int mine = rank.rank();
    for (const auto& members : {std::array{0, 1}, std::array{1, 2}}) {
      if (mine != members[0] && mine != members[1]) continue;
      auto pair = rank.group.subgroup(members, "pair" + std::to_string(members[0]));
      if (!pair) return tl::unexpected(pair.error());
      auto other = rank.device->create_stream().value();
      if (auto done = rounds(**pair, *rank.stream, *other); !done) return done;
    }
    return {};
  }));
}

}  // namespace
}  // namespace tandem::testing
