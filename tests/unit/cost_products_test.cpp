#include <gtest/gtest.h>

#include <cmath>

#include "cost/products.hpp"

namespace tandem::cost {
namespace {

// cuBLASLt's first choice on H200s: bench/results/h200_x2_native.json, h200_x4_native.json,
// h200_x2_random_preset.json. 64 rows take what b takes from memory.
TEST(VendorModel, IsNearWhatWasMeasured) {
  struct Measured {
    std::int64_t m, n, k;
    double us;
  };
  for (const auto& [m, n, k, us] :
       {Measured{512, 3584, 8192, 45}, Measured{2048, 3584, 8192, 172}, Measured{8192, 3584, 8192, 603},
        Measured{4096, 6656, 16384, 1133}, Measured{1088, 640, 2688, 15.6}, Measured{640, 5824, 5184, 54.7},
        Measured{4160, 1536, 9920, 171}, Measured{960, 1728, 8640, 44.9}, Measured{9408, 512, 1408, 27.4},
        Measured{64, 7168, 8192, 44}, Measured{64, 3584, 8192, 30}, Measured{64, 8192, 3584, 27}}) {
    EXPECT_NEAR(vendor_us(m, n, k) / us, 1, 0.25) << m << " x " << n << " x " << k;
  }
}

TEST(VendorModel, TakesLongerForMore) {
  for (const std::int64_t size : {64, 500, 4096}) {
    const double us = vendor_us(size, size, size);
    EXPECT_GT(us, 0);
    EXPECT_GE(vendor_us(2 * size, size, size), us);
    EXPECT_GE(vendor_us(size, 2 * size, size), us);
    EXPECT_GT(vendor_us(size, size, 2 * size), us);
  }
}

TEST(ProductUs, FollowsFromFlopsAndTheWidthOfElements) {
  EXPECT_DOUBLE_EQ(product_us(1e9, 2), 1e9 / kH200.half_flops_per_us);
  EXPECT_LT(product_us(1e9, 1), product_us(1e9, 2));
  EXPECT_GT(product_us(1e9, 4), 10 * product_us(1e9, 2));
}

/// Rates that are easy to add up.
constexpr GpuRates kRound = [] {
  GpuRates gpu = kH200;
  gpu.tile_us = 0;
  gpu.column_us = 1;
  gpu.native = {.launch_us = 1000, .begin_us = 10};
  gpu.native_unpaired = 2;
  gpu.link_bytes_per_us = 4;
  gpu.push_start_us = 100;
  gpu.push_us = 7;
  gpu.piece_bytes_per_us = 8;
  gpu.first_piece_us = 50;
  gpu.read_bytes_per_us = 1e9;
  return gpu;
}();

TEST(NativeTile, TakesLongerUnpaired) {
  EXPECT_DOUBLE_EQ(native_tile_us(64, 8192, true, kRound), 10 + 64);
  EXPECT_DOUBLE_EQ(native_tile_us(64, 4096, true, kRound), 10 + 32);
  EXPECT_DOUBLE_EQ(native_tile_us(128, 8192, false, kRound), 10 + 256);
  EXPECT_DOUBLE_EQ(native_tile_us(256, 8192, false, kRound), 10 + 320);
}

// However few the rows are, all of b is read.
TEST(NativeUs, IsNoLessThanTheTimeOfBFromMemory) {
  GpuRates slow = kRound;
  slow.read_bytes_per_us = 100;
  const NativeWaves one{.m = 1,
                        .n = 128,
                        .k = 8192,
                        .tile_columns = 64,
                        .cluster_columns = 2,
                        .clusters_at_once = 1,
                        .step_rows = 1,
                        .arrival = {.complete = 1}};
  EXPECT_DOUBLE_EQ(native_us(one, kRound), 1000 + 10 + 64);
  EXPECT_DOUBLE_EQ(native_us(one, slow), 1000 + 10 + 2.0 * 128 * 8192 / 100);
}

TEST(Arrival, IsAtOnceInPiecesThenByCopies) {
  const Arrival arrival{.chunk_bytes = 40, .complete = 2, .in_pieces = 3, .chunks_at_once = 2};
  EXPECT_EQ(arrival_us(arrival, 1, kRound), 0);
  EXPECT_DOUBLE_EQ(arrival_us(arrival, 2, kRound), 50);
  EXPECT_DOUBLE_EQ(arrival_us(arrival, 3, kRound), 50) << "two travel at one time";
  EXPECT_DOUBLE_EQ(arrival_us(arrival, 4, kRound), 50 + 2 * 40 / 8.0) << "behind two others";
  EXPECT_DOUBLE_EQ(arrival_us(arrival, 5, kRound), 100 + 7 + 40 / 4.0);
  EXPECT_DOUBLE_EQ(arrival_us(arrival, 6, kRound), 100 + 2 * (7 + 40 / 4.0));
}

/// Four rows of two tiles of 74 us, in two steps; two tiles run at one time.
constexpr NativeWaves kFour = {.m = 512,
                               .n = 128,
                               .k = 8192,
                               .tile_columns = 64,
                               .cluster_rows = 2,
                               .clusters_at_once = 1,
                               .chunks = 2,
                               .step_rows = 256,
                               .arrival = {.chunk_bytes = 400, .complete = 2}};

TEST(NativeWaves, AreAddedUp) {
  EXPECT_DOUBLE_EQ(native_us(kFour, kRound), 1000 + 4 * 74);
  NativeWaves waves = kFour;
  waves.clusters_at_once = 3;
  EXPECT_DOUBLE_EQ(native_us(waves, kRound), 1000 + 2 * 74) << "the last wave has one cluster";
  waves.step_rows = 128;
  waves.arrival.complete = waves.chunks = 4;
  EXPECT_DOUBLE_EQ(native_us(waves, kRound), 1000 + 2 * 74) << "a cluster of two steps is of the later one";
  waves.m = 0;
  waves.step_rows = 0;
  EXPECT_DOUBLE_EQ(native_us(waves, kRound), 1000) << "no rows";
}

TEST(NativeWaves, WaitForTheirChunks) {
  NativeWaves waves = kFour;
  waves.arrival.complete = 1;
  EXPECT_DOUBLE_EQ(native_us(waves, kRound), 1000 + (100 + 7 + 400 / 4.0) + 2 * 74);
  waves.arrival.in_pieces = 1;
  EXPECT_DOUBLE_EQ(native_us(waves, kRound), 1000 + 4 * 74) << "there before the own chunk is done";
}

TEST(NativeWaves, TakeWhatTheirTilesDoWhereThereAreVeryMany) {
  NativeWaves waves = kFour;
  waves.clusters_at_once = 66;
  waves.m = 128 * 1024;
  waves.n = 64 * 1024;
  waves.step_rows = waves.m / 2;
  const double tiles = 1024.0 * 1024;
  EXPECT_DOUBLE_EQ(native_us(waves, kRound), 1000 + tiles / 132 * 74);
  waves.arrival = {.chunk_bytes = std::int64_t{1} << 40, .complete = 1};
  EXPECT_DOUBLE_EQ(native_us(waves, kRound), 1000 + 100 + 7 + std::ldexp(1.0, 38) + 74)
      << "or their last chunk";
}

TEST(DepartingRows, CostTheAdditionsAndWhatTheLastWaveSends) {
  NativeWaves waves{.m = 2048,
                    .n = 8192,
                    .k = 8192,
                    .tile_columns = 256,
                    .cluster_rows = 2,
                    .clusters_at_once = 66,
                    .chunks = 2,
                    .step_rows = 1024,
                    .arrival = {.complete = 2}};
  // Two waves of either owner: the peer's are over before the own ones end.
  const double added_us = departing_us(waves, {.count = 2}) - native_us(waves);
  EXPECT_NEAR(added_us, kH200.owner_us + 2 * 256 * kH200.owner_column_us, 1e-9);
  // One wave of both: what the peer is sent travels behind it.
  waves.m = 512;
  waves.step_rows = 256;
  waves.n = 2048;
  const double bytes = 2.0 * 256 * 2048;
  EXPECT_NEAR(departing_us(waves, {.count = 2}) - native_us(waves),
              bytes / kH200.link_bytes_per_us + kH200.owner_us + 256 * kH200.owner_column_us, 1e-9);
  // Tiles that end sooner than their partials can leave.
  waves.k = 1024;
  waves.n = 8192;
  waves.m = 2048;
  waves.step_rows = 1024;
  const double first_us = kH200.native.launch_us + native_tile_us(256, 1024, true);
  EXPECT_NEAR(departing_us(waves, {.count = 2}),
              first_us + 16 * bytes / kH200.partial_bytes_per_us + 256 * kH200.owner_column_us, 1e-9);
}

TEST(DepartingRows, ThatShareTilesTravelBehindTheLastWave) {
  const NativeWaves waves{.m = 512,
                          .n = 8192,
                          .k = 8192,
                          .tile_columns = 256,
                          .cluster_rows = 2,
                          .clusters_at_once = 66,
                          .chunks = 1,
                          .step_rows = 512,
                          .arrival = {.complete = 1}};
  const auto behind_us = [&](int owners, bool own_all) {
    return departing_us(waves, {.count = owners, .share_tiles = true, .own_all = own_all}) - native_us(waves);
  };
  const double half_us = 512.0 * 8192 / kH200.link_bytes_per_us;
  EXPECT_NEAR(behind_us(2, true) - behind_us(2, false), half_us, 1e-9) << "all rows go, not half of them";
  EXPECT_NEAR(behind_us(4, true) - behind_us(2, true), 4 * half_us, 1e-9);
}

}  // namespace
}  // namespace tandem::cost
