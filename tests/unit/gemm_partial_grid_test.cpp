#include <gtest/gtest.h>

#include <set>
#include <utility>

#include "gemm/product.hpp"

// Where blocks of partials lie at their owner: each in a place of its own, and none beyond the end.

namespace tandem::gemm {
namespace {

TEST(GemmPartialGrid, every_block_has_a_place_of_its_own) {
  for (const int owners : {2, 3, 8}) {
    for (const std::int64_t rows : {1, 64, 65, 500}) {
      for (const std::int64_t n : {1, 32, 72}) {
        const PartialGrid grid(owners, rows, n, false);
        for (int owner = 0; owner < owners; ++owner) {
          std::set<std::int64_t> places;
          for (int sender = 0; sender < owners; ++sender) {
            if (sender == owner) continue;
            for (int strip = 0; strip < grid.strips; ++strip) {
              for (int column = 0; column < grid.columns; ++column)
                places.insert(grid.index(owner, sender, strip, column));
            }
          }
          EXPECT_EQ(static_cast<std::int64_t>(places.size()), grid.size());
          EXPECT_EQ(*places.begin(), 0);
          EXPECT_EQ(*places.rbegin(), grid.size() - 1);
        }
      }
    }
  }
}

TEST(GemmPartialGrid, blocks_of_a_strip_lie_side_by_side) {
  const PartialGrid grid(3, 200, 100, true);
  EXPECT_EQ(grid.strips, 4);
  EXPECT_EQ(grid.columns, 4);
  EXPECT_EQ(grid.index(0, 2, 1, 3), grid.index(0, 2, 1, 0) + 3);
}

TEST(GemmPartialGrid, few_rows_and_those_that_all_own_share_tiles) {
  const auto strips = [](std::int64_t m, const Owners& owners) {
    const PartialGrid grid = partial_grid_of(m, 64, owners);
    return std::pair(grid.shares_tiles, grid.strips);
  };
  EXPECT_EQ(strips(512, {.count = 4}), std::pair(true, 8)) << "of all rows";
  EXPECT_EQ(strips(513, {.count = 4}), std::pair(false, 3)) << "of an owner's 129";
  EXPECT_EQ(strips(1024, {.count = 2, .own_all = true}), std::pair(true, 16));
}

TEST(GemmPartialGrid, refuses_what_it_cannot_count) {
  EXPECT_TRUE(PartialGrid::accepts(2, 1, 1));
  EXPECT_FALSE(PartialGrid::accepts(1, 64, 64));
  EXPECT_FALSE(PartialGrid::accepts(2, 0, 64));
  EXPECT_FALSE(PartialGrid::accepts(2, 64, 0));
  EXPECT_FALSE(PartialGrid::accepts(8, std::int64_t{1} << 26, 4096));
  EXPECT_FALSE(PartialGrid::accepts(2, std::int64_t{1} << 40, std::int64_t{1} << 40));
}

}  // namespace
}  // namespace tandem::gemm
