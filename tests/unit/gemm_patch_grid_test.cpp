// How rows are cut that products send: what sender and receiver have to find alike.
#include "gemm/patch_grid.hpp"

#include <gtest/gtest.h>

#include <set>
#include <tuple>

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
