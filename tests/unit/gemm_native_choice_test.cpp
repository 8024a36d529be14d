// How a native product is cut into launches, and which kernel runs it: what needs no GPU.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <vector>

#include "gemm/chunk_parts.hpp"
#include "gemm/cuda/sm90/instances.hpp"
#include "gemm/cuda/sm90/piece_exchange.hpp"
#include "gemm/cuda/sm90/product_grid.hpp"
#include "gemm/native_model.hpp"

namespace tandem::gemm::cuda {
namespace {

TEST(ChunkParts, TakeEveryChunkOnceInOrder) {
  constexpr int kTileRows = 128;
  for (std::int64_t rows = 0; rows < 900; rows += rows % 7 == 0 ? 1 : 6) {
    for (int chunks = 1; chunks <= 9; ++chunks) {
      for (int pivot = 0; pivot < chunks; ++pivot) {
        SCOPED_TRACE(fmt::format("{} rows in {} chunks from {}", rows, chunks, pivot));
        const ChunkOrder all(rows, chunks, pivot);
        const ChunkParts parts(rows, chunks, pivot, {.tile_rows = kTileRows});
        int step = 0;
        for (const ChunkPart& part : parts.parts()) {
          const ChunkOrder& order = part.chunks;
          for (int i = 0; i < order.size(); ++i, ++step) {
            const int chunk = part.first + order.chunk(i);
            ASSERT_EQ(chunk, all.chunk(step));
            // The rows that the launch counts are those of the product.
            const Shard here = order.rows_of(order.chunk(i));
            ASSERT_EQ(part.first * all.stride() + here.offset, all.rows_of(chunk).offset);
            ASSERT_EQ(here.size, all.rows_of(chunk).size);
          }
          const std::int64_t last = order.rows_of(order.size() - 1).size;
          EXPECT_TRUE(order.size() == 1 || order.stride() % kTileRows == 0 || last == order.stride());
        }
        EXPECT_EQ(step, all.size());
      }
    }
  }
}

TEST(ChunkParts, ChunksOfWholeTilesAreTakenTogether) {
  for (const std::int64_t missing : {0, 1, 129, 511}) {
    for (int ranks = 1; ranks <= 4; ++ranks) {
      for (int pivot = 0; pivot < ranks; ++pivot) {
        SCOPED_TRACE(fmt::format("{} ranks from {}, {} rows missing", ranks, pivot, missing));
        const std::int64_t rows = 1024 * ranks - missing;
        const ChunkParts parts(rows, 4 * ranks, 4 * pivot, {.together = 4});
        const bool is_even = shard_stride(rows, 4 * ranks) % 128 == 0 && shard_stride(rows, ranks) == 1024;
        if (!is_even) continue;
        ASSERT_EQ(parts.parts().size(), 1U);
        EXPECT_EQ(parts.parts()[0].chunks.size(), ranks);
        EXPECT_EQ(parts.parts()[0].chunks.chunk(0), pivot);
      }
    }
  }
  // Of chunks that end inside a tile each is its own.
  EXPECT_EQ(ChunkParts(4 * 100, 4, 0, {.together = 2}).parts()[0].chunks.size(), 4);
}

TEST(ChunkParts, OutOfOrderPairsReachIntoTheNextShard) {
  const ChunkCut pairs{.cluster_rows = 2, .together = 1, .in_order = false};
  for (int pivot = 0; pivot < 4; ++pivot) {
    const ChunkParts parts(4 * 3 * 128, 4, pivot, pairs);
    ASSERT_EQ(parts.parts().size(), 1U);
    EXPECT_EQ(parts.parts()[0].chunks.size(), 1);
    EXPECT_EQ(parts.parts()[0].start.row, 3 * pivot);
    EXPECT_EQ(parts.parts()[0].start.section, 3);
  }
  // Where shards are whole pairs they stay apart, and so they do where all tile rows together are not.
  EXPECT_EQ(ChunkParts(4 * 256, 4, 1, pairs).parts()[0].chunks.size(), 4);
  EXPECT_EQ(ChunkParts(3 * 128, 3, 1, pairs).parts()[0].chunks.size(), 3);
  ChunkCut in_order = pairs;
  in_order.in_order = true;
  EXPECT_EQ(ChunkParts(4 * 128, 4, 1, in_order).parts()[0].chunks.size(), 4);
}

TEST(ChunkParts, SoTheyDoWhereShardsEndInsideATile) {
  const ChunkCut pairs{.cluster_rows = 2, .together = 1, .in_order = false};
  constexpr std::int64_t kShard = 2 * 128 + 5;  // three rows of tiles, the last one short
  for (int pivot = 0; pivot < 4; ++pivot) {
    const ChunkParts parts(4 * kShard, 4, pivot, pairs);
    ASSERT_EQ(parts.parts().size(), 1U);
    const ChunkPart& all = parts.parts()[0];
    EXPECT_EQ(all.chunks.size(), 1);
    EXPECT_EQ(all.chunks.stride(), 4 * 3 * 128) << "in whole tiles";
    EXPECT_EQ(all.start.row, 3 * pivot);
    EXPECT_EQ(all.start.section, 3);
    // Each row of tiles of each shard once, from the pivot's first one on.
    const TileOrder order(all.chunks, 128, {.tile_columns = 128, .cluster_rows = 2}, all.start);
    ASSERT_EQ(order.num_clusters(), 6);
    for (int cluster = 0; cluster < 6; ++cluster) {
      for (int row = 0; row < 2; ++row) {
        EXPECT_EQ(order.tile(cluster, row).row, (3 * pivot + 2 * cluster + row) % 12);
      }
    }
  }
  EXPECT_EQ(ChunkParts(3 * kShard, 3, 1, pairs).parts()[0].chunks.size(), 3)
      << "an odd number of rows of tiles";
  EXPECT_EQ(ChunkParts(4 * (kShard + 128), 4, 1, pairs).parts()[0].chunks.size(), 4) << "whole pairs";
  EXPECT_EQ(ChunkParts(4 * kShard - 1, 4, 1, pairs).parts().size(), 3U) << "the last one is shorter";
}

NativeKernel kernel_of(const char* name, int columns, int cluster_rows, int cluster_columns = 1) {
  return {
      .name = name,
      .dtype = DType::kBF16,
      .out = DType::kBF16,
      .sums = SumsKind::kPlain,
      .b_is_column_major = true,
      .tiling = {.tile_columns = columns, .cluster_rows = cluster_rows, .cluster_columns = cluster_columns}};
}

constexpr double kLaunchUs = 2.3;

class KernelChoiceTest : public ::testing::Test {
 protected:
  std::string chosen(const Product& product, std::string_view only = "") {
    std::vector<ResidentKernel> kernels = {
        {&wide_, 66}, {&middle_, 66}, {&narrow_, 66}, {&any_, 132}, {&few_, 66}};
    std::erase_if(kernels, [&](const ResidentKernel& one) { return !may_run(*one.kernel, only); });
    KernelChoice choice;
    choice.assign(std::move(kernels));
    std::string why_not;
    const ResidentKernel* found = choice.find(product, &why_not);
    return found == nullptr ? why_not : found->kernel->name;
  }
  static Product product(std::int64_t m, std::int64_t n, std::int64_t chunks = 2, std::int64_t complete = 2) {
    return {.m = m,
            .n = n,
            .k = 8192,
            .a = DType::kBF16,
            .b = DType::kBF16,
            .out = DType::kBF16,
            .b_is_column_major = true,
            .arrival = Chunks{.count = chunks, .complete = complete}};
  }
  NativeKernel wide_ = kernel_of("256", 256, 2);
  NativeKernel middle_ = kernel_of("224", 224, 2);
  NativeKernel narrow_ = kernel_of("112", 112, 2);
  NativeKernel any_ = kernel_of("128 1x1", 128, 1);
  NativeKernel few_ = kernel_of("64 1x2", 64, 1, 2);
};

TEST_F(KernelChoiceTest, TheWidthThatFillsItsWaves) {
  EXPECT_EQ(chosen(product(4096, 3584)), "224");
  EXPECT_EQ(chosen(product(8192, 3584)), "256");
  EXPECT_EQ(chosen(product(512, 3584)), "112");
}

// On four GPUs 224 columns are predicted to take 623 us and took 635, 256 columns 626 and 622.
TEST_F(KernelChoiceTest, TheWiderOneOfTwoThatAreAlike) {
  EXPECT_EQ(chosen(product(8192, 3584, 4, 1)), "256");
}

// A first wave of the own shard alone beats one wave of wider tiles, half of which would wait.
TEST_F(KernelChoiceTest, WhatArrivesLateCounts) {
  EXPECT_EQ(chosen(product(512, 7168)), "224");
  EXPECT_EQ(chosen(product(512, 7168, 2, 1)), "112");
}

/// In shards that all come in pieces, the own one too where they share tiles.
Product of_few_rows(std::int64_t m, std::int64_t n, std::int64_t ranks) {
  return {.m = m,
          .n = n,
          .k = 8192,
          .a = DType::kBF16,
          .b = DType::kBF16,
          .out = DType::kBF16,
          .b_is_column_major = true,
          .arrival = Chunks{.count = ranks, .complete = 1, .in_pieces = ranks - 1, .in_order = false}};
}

// A row of tiles whose b as many multiprocessors read as there are; but not one for each shard.
TEST_F(KernelChoiceTest, FewRowsTakeNarrowTiles) {
  for (const std::int64_t m : {1, 2, 16, 63, 128}) {
    for (const std::int64_t ranks : {2, 3, 8}) {
      const Product few = of_few_rows(m, 7168, ranks);
      EXPECT_TRUE(shares_tiles(few));
      EXPECT_EQ(chosen(few), "64 1x2") << m << " rows of " << ranks;
      EXPECT_EQ(predicted_us({&few_, 66}, few), predicted_us({&few_, 66}, of_few_rows(128, 7168, ranks)))
          << "they take as long as a whole tile";
    }
  }
  EXPECT_FALSE(shares_tiles(of_few_rows(256, 7168, 2)));
  EXPECT_EQ(chosen(of_few_rows(256, 7168, 2)), "112");
}

TEST_F(KernelChoiceTest, MoreChunksTogetherThanThereAreIsAll) {
  for (const bool in_order : {true, false}) {
    for (const std::int64_t m : {512, 3 * 128 * 4, 4 * 100}) {
      Product all = product(m, 3584, 4, 1);
      all.arrival->in_order = in_order;
      all.arrival->together = 4;
      const ResidentKernel kernel{&narrow_, 66};
      const double us = predicted_us(kernel, all);
      for (const std::int64_t together : {std::int64_t{5}, std::int64_t{INT32_MAX}, std::int64_t{1} << 40}) {
        SCOPED_TRACE(fmt::format("{} of 4 chunks of {} rows", together, m));
        Product more = all;
        more.arrival->together = together;
        EXPECT_EQ(predicted_us(kernel, more), us);
      }
    }
  }
}

TEST_F(KernelChoiceTest, ClustersThatDoNotDivideAChunkAreOut) {
  EXPECT_EQ(chosen(product(3 * 128 * 2, 3584, 2)), "128 1x1");
}

TEST_F(KernelChoiceTest, UnlessTheyMayReachIntoTheNext) {
  Product odd = product(4 * 128, 3584, 4, 1);
  EXPECT_EQ(chosen(odd), "128 1x1");
  odd.arrival->in_order = false;
  EXPECT_EQ(chosen(odd), "112");
}

// One wave of wide tiles that all begin at once beats two of narrow ones.
TEST_F(KernelChoiceTest, WhatComesInPiecesIsThereSoon) {
  Product in_pieces = product(512, 7168, 2, 1);
  in_pieces.arrival->in_pieces = 1;
  EXPECT_EQ(chosen(in_pieces), "224");
}

// 2048 rows of four ranks: the first wave of wide tiles is the own shard and the next one's, and the last
// shard, behind two others, is there in time for the second wave.
TEST_F(KernelChoiceTest, PiecesKeepWideTilesAheadOfNarrowOnes) {
  Product in_pieces = product(2048, 3584, 4, 1);
  EXPECT_EQ(chosen(in_pieces), "112");
  in_pieces.arrival->in_pieces = 3;
  EXPECT_EQ(chosen(in_pieces), "224");
}

// 2048 rows of eight ranks: three shards beside the own one in the first wave, and the last of the others
// begins to come when six have been sent, long behind it.
TEST_F(KernelChoiceTest, PiecesOfALaterWaveComeBehindThoseOfTheFirst) {
  Product in_pieces = product(2048, 3584, 8, 1);
  in_pieces.arrival->in_pieces = 7;
  const double tile = tile_us(middle_, in_pieces.k);
  const double last_us = 8 + 6 * 256.0 * 8192 * 2 / 220e3;
  ASSERT_GT(last_us, 8 + tile);
  EXPECT_NEAR(predicted_us({&middle_, 66}, in_pieces), kLaunchUs + last_us + tile, 0.1);
}

// What was chosen for one number of chunks in pieces says nothing of another.
TEST_F(KernelChoiceTest, HowManyComeInPiecesIsRemembered) {
  KernelChoice choice;
  choice.assign({{&wide_, 66}, {&middle_, 66}, {&narrow_, 66}, {&any_, 132}});
  int num_other = 0;
  for (std::int64_t n = 1024; n <= 8192; n += 512) {
    Product some = product(1024, n, 4, 1);
    some.arrival->in_pieces = 1;
    Product all = product(1024, n, 4, 1);
    all.arrival->in_pieces = 3;
    num_other += chosen(some) == chosen(all) ? 0 : 1;
    for (const Product& one : {some, all}) {
      EXPECT_EQ(choice.find(one, nullptr)->kernel->name, chosen(one)) << n << " columns";
    }
  }
  EXPECT_GT(num_other, 0);
}

// Two chunks a rank, four ranks.
TEST(IncomingPieces, GoRoundTheEnd) {
  const auto those_of = [](const IncomingPieces& pieces) {
    std::vector<int> those;
    for (int chunk = 0; chunk < pieces.chunks; ++chunk) {
      if (pieces.has(chunk)) those.push_back(chunk);
    }
    return those;
  };
  EXPECT_EQ(those_of({.first = 0, .count = 2, .chunks = 8}), (std::vector{0, 1})) << "of rank 3";
  EXPECT_EQ(those_of({.first = 6, .count = 4, .chunks = 8}), (std::vector{0, 1, 6, 7})) << "of rank 2";
  EXPECT_EQ(those_of({.first = 4, .count = 0, .chunks = 8}), std::vector<int>());
}

// A planner goes by that list where there is no GPU.
TEST(NativeKernels, AreThoseOfTheListThatNeedsNoGpu) {
  const auto built = async_input_kernels();
  const auto listed = native_kernels_of_hopper();
  ASSERT_EQ(built.size(), listed.size());
  for (std::size_t i = 0; i < built.size(); ++i) {
    SCOPED_TRACE(built[i].name);
    EXPECT_EQ(listed[i].name, built[i].name);
    EXPECT_EQ(listed[i].dtype, built[i].dtype);
    EXPECT_EQ(listed[i].out, built[i].out);
    EXPECT_EQ(listed[i].sums, built[i].sums);
    EXPECT_EQ(listed[i].b_is_column_major, built[i].b_is_column_major);
    EXPECT_EQ(listed[i].tiling.tile_columns, built[i].tiling.tile_columns);
    EXPECT_EQ(listed[i].tiling.cluster_rows, built[i].tiling.cluster_rows);
    EXPECT_EQ(listed[i].tiling.cluster_columns, built[i].tiling.cluster_columns);
  }
}

TEST_F(KernelChoiceTest, OneCanBeForced) {
  EXPECT_EQ(chosen(product(4096, 3584), "112"), "112");
  EXPECT_NE(chosen(product(4096, 3584), "113").find("no native kernel"), std::string::npos);
}

TEST_F(KernelChoiceTest, WhatNoKernelIsMadeForIsRefused) {
  Product f16 = product(4096, 3584);
  f16.a = f16.b = f16.out = DType::kF16;
  EXPECT_EQ(chosen(f16), "no native kernel takes f16 * f16 -> f16 with b column-major");
  // Sizes that would take for ever to walk through.
  EXPECT_NE(chosen(product(std::int64_t{1} << 30, std::int64_t{1} << 20)), "");
}

// 17 rows of tiles a rank, 7 columns: 8 pairs of rows are the own shard's, all at once, and 9 wait for the
// other one, also all at once. A pair that lay across the shards and came first would leave a third wave.
TEST_F(KernelChoiceTest, APairAcrossShardsWaitsWithTheLaterOne) {
  Product odd = product(2 * 17 * 128, 7 * 224, 2, 1);
  odd.arrival->in_order = false;
  const double arrival_us = kLaunchUs + 8.2 + 17 * 128 * 8192 * 2 / 360e3;
  ASSERT_GT(arrival_us, tile_us(middle_, odd.k));
  EXPECT_NEAR(predicted_us({&middle_, 66}, odd), arrival_us + tile_us(middle_, odd.k), 1);
}

// From some size on waves are not walked through one by one: the time goes on as it was.
TEST_F(KernelChoiceTest, ManyTilesTakeTheirTime) {
  const ResidentKernel wide{&wide_, 66};
  const double few_us = predicted_us(wide, product(65'536, 32'512, 2, 1));
  const double many_us = predicted_us(wide, product(65'536, 33'024, 2, 1));
  EXPECT_NEAR(many_us / few_us, 33'024.0 / 32'512, 0.01);
}

// 3584 columns in tiles of 224, 66 clusters at one time.
TEST(PeersAtOnce, AreThoseThatMultiplyTheShardInTheirFirstWave) {
  EXPECT_EQ(peers_at_once(3, 66, 64, 4), 3) << "1024 rows of four ranks: all in one wave";
  EXPECT_EQ(peers_at_once(3, 66, 128, 4), 1) << "2048 rows: the own shard and one more";
  EXPECT_EQ(peers_at_once(3, 66, 256, 4), 1) << "4096 rows: the own shard";
  EXPECT_EQ(peers_at_once(7, 66, 128, 8), 3) << "2048 rows of eight ranks";
  EXPECT_EQ(peers_at_once(1, 66, 224, 2), 1);
  EXPECT_EQ(peers_at_once(3, 66, 0, 4), 3) << "no tiles";
  EXPECT_EQ(peers_at_once(7, 2, 4, 8), 1) << "two shards to a cluster";
}

/// One of two shards of so many rows of 8192.
PieceGrid grid_of_shard(std::int64_t rows) {
  return {{.rows = 2 * rows, .shard_rows = rows, .shards = 2, .row_bytes = 16384}, static_cast<int>(rows)};
}

TEST(PeersAtOnce, DecideWhatAFenceStandsBehindAndThePace) {
  PiecePush push;
  push.grid = grid_of_shard(512);  // 4096 pieces
  push.peers = 3;
  send_rounds(push, 3, 6);
  EXPECT_EQ(push.rounds.together, 2);
  EXPECT_EQ(push.rounds.of_turn, 2048);
  EXPECT_EQ(push.round_ps, std::int64_t{1'000'000} * 2 * 3 * 2048 / 220'000);
  send_rounds(push, 1, 6);
  EXPECT_EQ(push.rounds.together, 6);
  EXPECT_EQ(push.rounds.of_turn, 683);
  EXPECT_EQ(push.round_ps, std::int64_t{1'000'000} * 6 * 2048 / 220'000);
  send_rounds(push, 1, 4);
  EXPECT_EQ(push.rounds.together, 4) << "no more than there is room for";
  EXPECT_EQ(push.rounds.of_turn, 1024);
  EXPECT_EQ(push.round_ps, std::int64_t{1'000'000} * 4 * 2048 / 220'000);
}

/// The first rank of `ranks` with `rows` of 8192 and 3584 columns, as 66 pairs of `columns` columns multiply.
ProductGrid grid_of(std::int64_t rows, int ranks, int columns, int peers) {
  AsyncInputLaunch launch;
  launch.n = 3584;
  launch.k = 8192;
  launch.rows = rows;
  launch.chunks = ChunkOrder(rows, ranks, 0);
  launch.signal_rows = static_cast<int>(rows / ranks);
  launch.complete_rows = rows / ranks;
  launch.complete_end = 1;
  launch.num_clusters = 66;
  launch.wave_us = 80;
  launch.push.grid = grid_of_shard(rows / ranks);
  launch.push.peers = peers;
  return product_grid(launch, async_input_tiling(columns, 2, 1), 5);
}

TEST(ProductGrid, SendsToAllPeersWithinAWaveAndOneAfterTheOtherBeyond) {
  EXPECT_EQ(grid_of(1024, 4, 224, 3).push.rounds.at_once, 3);
  EXPECT_EQ(grid_of(1024, 4, 112, 3).push.rounds.at_once, 1) << "two waves: the own shard and one more";
  EXPECT_EQ(grid_of(2048, 4, 224, 3).push.rounds.at_once, 1);
  EXPECT_EQ(grid_of(2048, 4, 224, 3).push.rounds.together, 5);
  EXPECT_EQ(grid_of(4096, 4, 224, 3).push.rounds.at_once, 1);
  EXPECT_EQ(grid_of(2048, 8, 224, 7).push.rounds.at_once, 3);
  EXPECT_EQ(grid_of(2048, 4, 224, 0).push.peers, 0);
  const ProductGrid sent_by_others = grid_of(512, 2, 224, 1);
  EXPECT_GT(sent_by_others.push.senders, 0);
  EXPECT_EQ(sent_by_others.push.rounds.at_once, 1);
}

// One matrix of all rows, of which nothing is complete.
TEST(ProductGrid, OfShardsThatShareTilesIsOneMatrix) {
  const auto grid_of_few = [](std::int64_t rows, int clusters) {
    const PieceCut cut{.rows = rows, .shard_rows = shard_stride(rows, 2), .shards = 2, .row_bytes = 16384};
    AsyncInputLaunch launch;
    launch.n = 7168;
    launch.k = 8192;
    launch.rows = rows;
    launch.chunks = ChunkOrder(rows, 1, 0);
    launch.signal_rows = static_cast<int>(rows);
    launch.num_clusters = clusters;
    launch.wave_us = 30;
    launch.pieces = incoming_pieces(cut, 1, nullptr);
    launch.pieces.count = 2;
    launch.push.grid = PieceGrid(cut, static_cast<int>(cut.shard_rows));
    launch.push.peers = 2;
    return product_grid(launch, async_input_tiling(64, 1, 2), 5);
  };
  const ProductGrid grid = grid_of_few(100, 66);
  EXPECT_EQ(grid.batch_rows, 100);
  EXPECT_EQ(grid.batches, 1);
  EXPECT_EQ(grid.tiles_per_signal, 1);
  EXPECT_EQ(grid.complete_batches, 0);
  EXPECT_EQ(grid.num_clusters, 56);
  EXPECT_EQ(grid.push.senders, 16) << "of 20 multiprocessors that no tile needs";
  EXPECT_EQ(grid_of_few(300, 66).tiles_per_signal, 3);
  const ProductGrid beside_tiles = grid_of_few(100, 56);
  EXPECT_EQ(beside_tiles.push.senders, 0);
  EXPECT_EQ(beside_tiles.push.rounds.at_once, 2) << "to both at one time";
}

TEST(IncomingPieces, OfShardsThatShareTilesAreWaitedForTogether) {
  const PieceCut cut{.rows = 100, .shard_rows = 34, .shards = 3, .row_bytes = 16384};
  const IncomingPieces pieces = incoming_pieces(cut, 1, nullptr);
  EXPECT_EQ(pieces.cut.parts, 9);
  EXPECT_EQ(pieces.cut.of_step, 16);
  EXPECT_EQ(1 << pieces.log2_lanes_of_step, 4) << "four words each";
  EXPECT_EQ(pieces.flag_row(2), 0);
  EXPECT_EQ(pieces.chunk_of(0, 2), 0);
  EXPECT_EQ(pieces.chunk_of(0, 3), 1);
  EXPECT_EQ(pieces.chunk_of(0, 8), 2);
  const PieceCut whole{.rows = 768, .shard_rows = 256, .shards = 3, .row_bytes = 16384};
  const IncomingPieces of_tiles = incoming_pieces(whole, 2, nullptr);
  EXPECT_EQ(1 << of_tiles.log2_lanes_of_step, 2);
  EXPECT_EQ(of_tiles.chunks, 6);
  EXPECT_EQ(of_tiles.flag_row(4), 4);
  EXPECT_EQ(of_tiles.chunk_of(4, 7), 4);
}

TEST(Senders, OnlySendWhereTheyAreEnough) {
  PiecePush push;
  push.grid = grid_of_shard(256);
  EXPECT_EQ(senders_among(4, push, 80), 0) << "to nobody";
  push.peers = 3;
  EXPECT_EQ(senders_among(4, push, 80), 0);
  EXPECT_EQ(senders_among(8, push, 80), 8);
  EXPECT_EQ(senders_among(0, push, 80), 0);
  EXPECT_EQ(senders_among(100, push, 40), 16);
  push.peers = 1;
  EXPECT_EQ(senders_among(4, push, 80), 4);
  EXPECT_EQ(senders_among(2, push, 80), 0);
}

}  // namespace
}  // namespace tandem::gemm::cuda
