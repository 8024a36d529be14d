// How rows are cut that products send: what sender and receiver have to find alike.
#include "gemm/patch_grid.hpp"

#include <gtest/gtest.h>

#include <set>
#include <tuple>
#include <utility>
#include <vector>

namespace tandem::gemm {
namespace {

TEST(PatchGrid, HoldsEveryPatchOnceStepByStepInK) {
  for (const int tiles : {1, 2, 5}) {
    for (const int k_steps : {1, 3, 128}) {
      const PatchGrid grid(tiles, k_steps);
      std::set<std::tuple<int, int, int>> seen;
      std::set<std::int64_t> stamps;
      int last_step = 0;
      for (int i = 0; i < grid.size(); ++i) {
        const PatchGrid::Patch patch = grid.patch(i);
        ASSERT_GE(patch.k_step, last_step);
        last_step = patch.k_step;
        ASSERT_LT(patch.tile, tiles);
        ASSERT_LT(patch.k_step, k_steps);
        ASSERT_LT(patch.part, PatchGrid::kOfStep);
        ASSERT_TRUE(seen.emplace(patch.tile, patch.k_step, patch.part).second);
        stamps.insert(PatchGrid::stamp(patch.tile, k_steps, patch.k_step, patch.part));
      }
      EXPECT_EQ(stamps.size(), static_cast<std::size_t>(grid.size())) << "a stamp each";
      EXPECT_EQ(*stamps.rbegin(), grid.size() - 1) << "and no gaps";
      EXPECT_EQ(grid.size() * PatchGrid::kRows * PatchGrid::kColumns,
                tiles * PatchGrid::kTileRows * k_steps * PatchGrid::kColumns);
    }
  }
}

// A receiver looks at the eight stamps of a tile's step with one load.
TEST(PatchGrid, StampsOfAStepLieSideBySide) {
  EXPECT_EQ(PatchGrid::stamp(0, 4, 0, 7), 7);
  EXPECT_EQ(PatchGrid::stamp(0, 4, 1, 0), 8);
  EXPECT_EQ(PatchGrid::stamp(1, 4, 0, 0), 32);
}

/// What warps send in their rounds: to each peer every patch once. `sent` sees them in the order in which
/// rounds are numbered.
template <class Sent>
void walk(const PatchRounds& rounds, int warps, Sent sent) {
  std::vector<PatchRound> at;
  for (int warp = 0; warp < warps; ++warp) at.emplace_back(rounds, warp);
  const int turns = (rounds.peers + rounds.at_once - 1) / rounds.at_once;
  for (int number = 0; number < turns * rounds.of_turn; ++number) {
    PatchRound& round = at[static_cast<std::size_t>(number % warps)];
    ASSERT_FALSE(round.is_over(rounds));
    ASSERT_LE(round.end(rounds) - round.first(rounds), rounds.together);
    for (int peer = round.peer(); peer < round.end_peer(rounds); ++peer) {
      for (int patch = round.first(rounds); patch < round.end(rounds); ++patch) sent(peer, patch);
    }
    round.advance(rounds, warps);
  }
  for (const PatchRound& round : at) {
    EXPECT_TRUE(round.is_over(rounds));
    EXPECT_EQ(round.first(rounds), round.end(rounds)) << "nothing is loaded for it";
  }
}

TEST(PatchRounds, BringEveryPatchOnceToEveryPeer) {
  for (const int patches : {1, 8, 24, 1000}) {
    for (const int peers : {1, 3, 7}) {
      for (int at_once = 1; at_once <= peers; ++at_once) {
        for (const int together : {1, 3, 4}) {
          for (const int warps : {1, 2, 132}) {
            SCOPED_TRACE(testing::Message() << patches << " patches to " << at_once << " of " << peers
                                            << " peers, " << together << " together, " << warps << " warps");
            std::set<std::pair<int, int>> seen;
            int turn = 0;
            int last = -1;  // patch of this turn
            walk({patches, peers, at_once, together}, warps, [&](int peer, int patch) {
              ASSERT_TRUE(seen.emplace(peer, patch).second);
              ASSERT_GE(peer / at_once, turn) << "earlier peers have all theirs";
              if (peer / at_once > turn) last = -1;
              turn = peer / at_once;
              ASSERT_GE(patch / together, last / together);
              last = patch;
            });
            EXPECT_EQ(seen.size(), static_cast<std::size_t>(patches) * peers);
          }
        }
      }
    }
  }
}

TEST(PatchGrid, NeedsWholeTilesAndSteps) {
  EXPECT_TRUE(PatchGrid::accepts(128, 64));
  EXPECT_TRUE(PatchGrid::accepts(16384, 16384));
  EXPECT_FALSE(PatchGrid::accepts(64, 64));
  EXPECT_FALSE(PatchGrid::accepts(200, 64));
  EXPECT_FALSE(PatchGrid::accepts(128, 72));
  EXPECT_FALSE(PatchGrid::accepts(0, 64));
  EXPECT_FALSE(PatchGrid::accepts(128, 0));
  EXPECT_FALSE(PatchGrid::accepts(std::int64_t{1} << 31, 64)) << "more than can be counted";
}

}  // namespace
}  // namespace tandem::gemm
