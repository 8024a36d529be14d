// The order of tiles, over every small shape and many large ones: what a kernel relies on.
#include <gtest/gtest.h>

#include <array>
#include <ostream>
#include <random>
#include <set>
#include <tandem/gemm/tile_order.hpp>
#include <tuple>
#include <vector>

namespace tandem::gemm {
namespace {

struct Case {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  int chunks = 1;
  int pivot = 0;
  Tiling tiling;
};

std::ostream& operator<<(std::ostream& out, const Case& c) {
  return out << c.rows << "x" << c.columns << " in " << c.chunks << " chunks from " << c.pivot << ", tiles "
             << c.tiling.tile_rows << "x" << c.tiling.tile_columns << ", clusters " << c.tiling.cluster_rows
             << "x" << c.tiling.cluster_columns << ", groups of " << c.tiling.group;
}

TEST(ChunkOrder, IsTheShardRuleFromThePivotOn) {
  for (const std::int64_t rows : {0, 1, 2, 3, 5, 8, 9, 640, 1000}) {
    for (const int chunks : {1, 2, 3, 4, 5, 8}) {
      for (int pivot = 0; pivot < chunks; ++pivot) {
        const ChunkOrder order(rows, chunks, pivot);
        std::vector<int> want;
        for (int i = 0; i < chunks; ++i) {
          const int chunk = (pivot + i) % chunks;
          if (shard_of(rows, chunks, chunk).size > 0) want.push_back(chunk);
        }
        ASSERT_EQ(order.size(), want.size());
        for (int step = 0; step < order.size(); ++step) {
          ASSERT_EQ(order.chunk(step), want[static_cast<std::size_t>(step)])
              << rows << " " << chunks << " " << pivot;
          ASSERT_EQ(order.step_of(order.chunk(step)), step);
          const Shard expected = shard_of(rows, chunks, order.chunk(step));
          const Shard got = order.rows_of(order.chunk(step));
          ASSERT_EQ(std::tie(got.offset, got.size), std::tie(expected.offset, expected.size));
        }
      }
    }
  }
}

/// All tiles of a cluster, those of one column after those of the one before.
std::vector<Tile> cluster_of(const TileOrder& order, const Tiling& tiling, int index) {
  std::vector<Tile> tiles;
  for (int column = 0; column < tiling.cluster_columns; ++column) {
    for (int row = 0; row < tiling.cluster_rows; ++row) tiles.push_back(order.tile(index, row, column));
  }
  return tiles;
}

void check(const Case& c) {
  SCOPED_TRACE(::testing::PrintToString(c));
  const ChunkOrder chunks(c.rows, c.chunks, c.pivot);
  if (!TileOrder::accepts(chunks, c.columns, c.tiling)) return;
  const TileOrder order(chunks, c.columns, c.tiling);
  std::set<std::tuple<int, int, int>> seen;
  int step = 0;
  for (int i = 0; i < order.num_clusters(); ++i) {
    const std::vector<Tile> tiles = cluster_of(order, c.tiling, i);
    for (const Tile& tile : tiles) {
      // One chunk a cluster, its rows and columns one behind the other.
      ASSERT_EQ(tile.chunk, tiles[0].chunk);
      ASSERT_EQ(tiles[0].row % c.tiling.cluster_rows, 0);
      ASSERT_EQ(tiles[0].column % c.tiling.cluster_columns, 0);
      // Each tile holds elements, and none twice.
      ASSERT_GE(tile.row, 0);
      ASSERT_LT(std::int64_t{tile.row} * c.tiling.tile_rows, chunks.rows_of(tile.chunk).size);
      ASSERT_GE(tile.column, 0);
      ASSERT_LT(std::int64_t{tile.column} * c.tiling.tile_columns, c.columns);
      ASSERT_TRUE(seen.emplace(tile.chunk, tile.row, tile.column).second);
    }
    const int now = chunks.step_of(tiles[0].chunk);
    ASSERT_GE(now, step) << "cluster " << i;
    step = now;
  }
  std::size_t tiles = 0;
  for (int s = 0; s < chunks.size(); ++s) {
    const std::int64_t rows = chunks.rows_of(chunks.chunk(s)).size;
    tiles += static_cast<std::size_t>((rows + c.tiling.tile_rows - 1) / c.tiling.tile_rows *
                                      ((c.columns + c.tiling.tile_columns - 1) / c.tiling.tile_columns));
  }
  ASSERT_EQ(seen.size(), tiles);
}

const std::vector<Tiling>& tilings() {
  static const std::vector<Tiling> all = [] {
    std::vector<Tiling> list;
    for (const auto& [rows, columns] : {std::pair{1, 1}, {2, 1}, {1, 2}, {2, 2}}) {
      for (const int group : {1, 2, 3, 8}) list.push_back({128, 224, rows, columns, group});
    }
    return list;
  }();
  return all;
}

TEST(TileOrder, CountsAsManyTilesAsItAccepts) {
  const ChunkOrder chunks(1, 1, 0);
  constexpr Tiling kSmallest{1, 1, 1, 1, 8};
  ASSERT_TRUE(TileOrder::accepts(chunks, INT32_MAX, kSmallest));
  for (const TileStart start : {TileStart{}, TileStart{0, 1}}) {
    const TileOrder order(chunks, INT32_MAX, kSmallest, start);
    ASSERT_EQ(order.num_clusters(), INT32_MAX);
    for (const int index : {0, 1, INT32_MAX - 1}) EXPECT_EQ(order.tile(index), (Tile{0, 0, index}));
  }
}

TEST(TileOrder, HoldsEachTileOnceInTheOrderOfChunks) {
  // In units of half tiles, so that chunks end inside tiles too.
  for (std::int64_t rows = 0; rows <= 26; ++rows) {
    for (const std::int64_t columns : {0, 1, 224, 225, 448, 1000}) {
      for (const int chunks : {1, 2, 3, 4, 8}) {
        for (int pivot = 0; pivot < chunks; ++pivot) {
          for (const Tiling& tiling : tilings()) {
            check({rows * 64, columns, chunks, pivot, tiling});
            if (::testing::Test::HasFatalFailure()) return;
          }
        }
      }
    }
  }
}

TEST(TileOrder, HoldsEachTileOnceForLargeOddShapes) {
  std::mt19937 random(7);
  for (int i = 0; i < 400; ++i) {
    const int chunks = 1 + static_cast<int>(random() % 16);
    Tiling tiling = tilings()[random() % tilings().size()];
    tiling.tile_columns = static_cast<int>(112 + 16 * (random() % 10));
    check({static_cast<std::int64_t>(random() % 20'000), static_cast<std::int64_t>(random() % 9'000), chunks,
           static_cast<int>(random() % static_cast<unsigned>(chunks)), tiling});
    if (::testing::Test::HasFatalFailure()) return;
  }
}

TEST(TileOrder, NeedsWholeClusters) {
  const Tiling pairs{.cluster_rows = 2};
  const Tiling beside{.cluster_columns = 2};
  EXPECT_TRUE(TileOrder::accepts({1024, 4, 0}, 256, pairs));
  EXPECT_FALSE(TileOrder::accepts({512, 4, 0}, 256, pairs)) << "one tile row a chunk";
  EXPECT_FALSE(TileOrder::accepts({1025, 8, 0}, 256, pairs)) << "the last chunk has one tile row";
  EXPECT_TRUE(TileOrder::accepts({900, 4, 0}, 256, pairs)) << "the last tile row may be short";
  EXPECT_TRUE(TileOrder::accepts({512, 4, 0}, 512, beside));
  EXPECT_FALSE(TileOrder::accepts({512, 4, 0}, 513, beside));
  EXPECT_TRUE(TileOrder::accepts({0, 4, 0}, 513, beside));
}

TEST(TileOrder, NeedsPositiveSizes) {
  for (int Tiling::*const size : {&Tiling::tile_rows, &Tiling::tile_columns, &Tiling::cluster_rows,
                                  &Tiling::cluster_columns, &Tiling::group}) {
    for (const int value : {0, -1}) {
      Tiling tiling;
      tiling.*size = value;
      EXPECT_FALSE(TileOrder::accepts({1024, 4, 0}, 256, tiling));
      EXPECT_FALSE(TileOrder::accepts({0, 4, 0}, 0, tiling)) << "also where there are no tiles";
    }
  }
  EXPECT_FALSE(TileOrder::accepts({1024, 4, 0}, -256, {}));
}

TEST(TileOrder, RefusesMoreTilesThanCanBeCounted) {
  EXPECT_FALSE(TileOrder::accepts({std::int64_t{1} << 40, 1, 0}, 1, {}));
  EXPECT_FALSE(TileOrder::accepts({std::int64_t{1} << 30, 4, 0}, std::int64_t{1} << 18, {}));
  EXPECT_FALSE(TileOrder::accepts({128, 1, 0}, std::int64_t{1} << 62, {}));
}

// A single chunk from a row in its middle on: every tile once, the rows of a cluster one behind the other,
// around, and no cluster before one that ends in an earlier section.
TEST(TileOrder, MayStartInTheMiddleOfAChunk) {
  for (const int rows : {2, 4, 6, 12, 20}) {
    for (int first = 0; first < rows; ++first) {
      for (const int section : {0, 1, 3, 5}) {
        SCOPED_TRACE(::testing::Message() << rows << " rows from " << first << ", sections of " << section);
        const Tiling tiling{.tile_rows = 128, .tile_columns = 256, .cluster_rows = 2, .group = 4};
        const TileOrder order(ChunkOrder(rows * 128, 1, 0), 3 * 256, tiling,
                              {.row = first, .section = section});
        std::set<std::pair<int, int>> seen;
        int last_section = 0;
        for (int i = 0; i < order.num_clusters(); ++i) {
          const Tile upper = order.tile(i, 0);
          const Tile lower = order.tile(i, 1);
          ASSERT_EQ(lower.row, (upper.row + 1) % rows);
          ASSERT_EQ(lower.column, upper.column);
          ASSERT_EQ((upper.row - first + rows) % rows % 2, 0);
          const int ends_in = section == 0 ? 0 : (lower.row - first + rows) % rows / section;
          ASSERT_GE(ends_in, last_section);
          last_section = ends_in;
          for (const Tile& tile : {upper, lower}) {
            ASSERT_TRUE(tile.row >= 0 && tile.row < rows);
            ASSERT_TRUE(seen.emplace(tile.row, tile.column).second);
          }
        }
        EXPECT_EQ(seen.size(), static_cast<std::size_t>(rows * 3));
        EXPECT_EQ(order.tile(0).row, first);
      }
    }
  }
}

// 17 rows of tiles a section: its 8 or 9 rows of pairs are two groups each, swept in turns.
TEST(TileOrder, SweepsGroupsOfSectionsForthAndBack) {
  const Tiling tiling{.tile_rows = 128, .tile_columns = 256, .cluster_rows = 2, .group = 8};
  const TileOrder order(ChunkOrder(4 * 17 * 128, 1, 0), 3 * 256, tiling, {.row = 17, .section = 17});
  std::vector<int> columns;
  for (int i = 0; i < order.num_clusters(); ++i) {
    const int column = order.tile(i).column;
    if (columns.empty() || columns.back() != column) columns.push_back(column);
  }
  // Neighbouring sweeps share a column, so each group adds two to the list.
  std::vector<int> want = {0};
  for (int group = 0; group < 8; ++group) {
    want.push_back(1);
    want.push_back(group % 2 == 0 ? 2 : 0);
  }
  EXPECT_EQ(columns, want);
}

TEST(TileOrder, SweepsGroupsOfRowsForthAndBack) {
  const Tiling tiling{.tile_rows = 128, .tile_columns = 256, .cluster_rows = 2, .group = 4};
  const TileOrder order(ChunkOrder(10 * 256, 2, 1), 3 * 256, tiling);
  std::vector<std::array<int, 3>> got;
  for (int i = 0; i < order.num_clusters(); ++i) {
    const Tile tile = order.tile(i);
    got.push_back({tile.chunk, tile.row / 2, tile.column});
  }
  // Five pairs of tile rows a chunk: a group of three, and one of two that goes back; then the next chunk.
  const std::vector<std::array<int, 3>> want = {
      {1, 0, 0}, {1, 1, 0}, {1, 2, 0}, {1, 0, 1}, {1, 1, 1}, {1, 2, 1}, {1, 0, 2}, {1, 1, 2},
      {1, 2, 2}, {1, 3, 2}, {1, 4, 2}, {1, 3, 1}, {1, 4, 1}, {1, 3, 0}, {1, 4, 0},  //
      {0, 0, 0}, {0, 1, 0}, {0, 2, 0}, {0, 0, 1}, {0, 1, 1}, {0, 2, 1}, {0, 0, 2}, {0, 1, 2},
      {0, 2, 2}, {0, 3, 2}, {0, 4, 2}, {0, 3, 1}, {0, 4, 1}, {0, 3, 0}, {0, 4, 0}};
  EXPECT_EQ(got, want);
}

}  // namespace
}  // namespace tandem::gemm
