#include <gtest/gtest.h>

#include "cost/transfers.hpp"

namespace tandem::cost {
namespace {

constexpr auto kGather = Collective::kAllGather;
constexpr auto kScatter = Collective::kReduceScatter;
/// What mailboxes had room for when the results below were measured.
constexpr std::int64_t kMost = 2 << 20;

// What serial took longer than its product on H200s: bench/results/h200_x2_native.json,
// h200_x2_random_preset.json, h200_x4_native.json.
TEST(CollectiveModel, IsNearWhatWasMeasured) {
  struct Measured {
    Collective collective;
    int world;
    std::int64_t rows, columns;  // of 16 bits: of a rank's part
    double us;
  };
  for (const auto& [collective, world, rows, columns, us] :
       {Measured{kGather, 2, 288, 1536, 9.0}, Measured{kGather, 2, 576, 1792, 13.3},
        Measured{kGather, 2, 352, 3584, 19.2}, Measured{kGather, 2, 2112, 1728, 35.4},
        Measured{kGather, 2, 3936, 8960, 264.4}, Measured{kGather, 4, 16, 8192, 9.7},
        Measured{kGather, 4, 128, 8192, 29.9}, Measured{kGather, 4, 1024, 8192, 177.1},
        Measured{kGather, 4, 4096, 8192, 659.2}, Measured{kScatter, 2, 32, 8192, 7.8},
        Measured{kScatter, 2, 512, 8192, 36.5}, Measured{kScatter, 2, 2048, 8192, 113.7},
        Measured{kScatter, 4, 128, 8192, 33.6}, Measured{kScatter, 4, 1024, 8192, 170.8}}) {
    EXPECT_NEAR(collective_us(collective, 2 * rows * columns, world, kMost) / us, 1, 0.2)
        << world << " ranks, " << rows << " x " << columns;
  }
}

TEST(CollectiveModel, TakesLongerForMore) {
  for (const Collective collective : {kGather, kScatter}) {
    EXPECT_EQ(collective_us(collective, 1 << 20, 1, kMost), 0) << "one rank has all there is";
    for (const std::int64_t bytes :
         {std::int64_t{1024}, kMost / 2, kMost - 16, kMost, kMost + 16, 2 * kMost, 64 * kMost}) {
      for (const int world : {2, 3, 4, 8}) {
        const double us = collective_us(collective, bytes, world, kMost);
        EXPECT_GT(us, 0);
        EXPECT_GE(collective_us(collective, bytes + 16, world, kMost), us)
            << bytes << ", " << world << " ranks";
        EXPECT_GT(collective_us(collective, 2 * bytes, world, kMost), us);
        EXPECT_GT(collective_us(collective, bytes, world + 1, kMost), us);
      }
    }
  }
}

TEST(CollectiveModel, GoesWithTheLink) {
  GpuRates slow = kH200;
  slow.link_bytes_per_us /= 2;
  const double us = collective_us(kGather, 64 * kMost, 4, kMost);
  const double start_us = kH200.gather.start_us;
  EXPECT_DOUBLE_EQ(collective_us(kGather, 64 * kMost, 4, kMost, slow) - start_us, 2 * (us - start_us));
}

// Two steps, or one exchange of everything where that takes less.
TEST(CollectiveModel, AllReducesInTheFewestMicroseconds) {
  const auto all_reduce = [](std::int64_t bytes, int world) {
    return collective_us(Collective::kAllReduce, bytes, world, kMost);
  };
  const auto both = [](std::int64_t bytes, int world) {
    return collective_us(kScatter, bytes, world, kMost) + collective_us(kGather, bytes, world, kMost);
  };
  EXPECT_EQ(all_reduce(1 << 20, 1), 0);
  EXPECT_EQ(all_reduce(1024, 4), collective_us(kScatter, 4096, 4, kMost));
  EXPECT_LT(all_reduce(1024, 4), both(1024, 4));
  for (const int world : {2, 4, 8}) EXPECT_EQ(all_reduce(8 << 20, world), both(8 << 20, world));
  EXPECT_EQ(all_reduce(200 << 10, 8), both(200 << 10, 8)) << "each of 8 ranks would push 1.6 MB to 7 others";
}

TEST(KeepPace, CopiesDoWhereProductsAreWide) {
  EXPECT_TRUE(copies_keep_pace(3584));
  EXPECT_FALSE(copies_keep_pace(2048));
  GpuRates slow = kH200;
  slow.link_bytes_per_us /= 2;
  EXPECT_FALSE(copies_keep_pace(3584, slow));
}

TEST(KeepPace, PiecesDoWhereWavesLeaveTimeForThem) {
  const SentShards in_a_wave{.world = 4, .rows = 256, .n = 3584, .k = 8192};
  const SentShards in_two{.world = 4, .rows = 512, .n = 3584, .k = 8192};
  EXPECT_TRUE(pieces_keep_pace(in_a_wave));
  EXPECT_TRUE(pieces_keep_pace(in_two));
  GpuRates slow_at_first = kH200;
  slow_at_first.first_wave_bytes_per_us /= 2;
  EXPECT_FALSE(pieces_keep_pace(in_a_wave, slow_at_first));
  GpuRates slow_later = kH200;
  slow_later.later_wave_bytes_per_us /= 2;
  EXPECT_TRUE(pieces_keep_pace(in_a_wave, slow_later)) << "there is one wave";
  EXPECT_FALSE(pieces_keep_pace(in_two, slow_later));
  for (const SentShards& empty : {SentShards{.world = 4, .rows = 0, .n = 3584, .k = 8192},
                                  SentShards{.world = 4, .rows = 256, .n = 0, .k = 8192},
                                  SentShards{.world = 4, .rows = 256, .n = 3584, .k = 0}}) {
    EXPECT_FALSE(pieces_keep_pace(empty));
  }
}

}  // namespace
}  // namespace tandem::cost
