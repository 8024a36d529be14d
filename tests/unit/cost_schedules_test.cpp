#include <gtest/gtest.h>

#include "cost/products.hpp"
#include "cost/schedules.hpp"

namespace tandem::cost {
namespace {

/// Four ranks; a chunk takes 100 us to multiply, 40 to copy.
Workload on_gpu() {
  Workload work{.kind = DeviceKind::kCuda, .world = 4, .chunk_bytes = 4000, .pipelined_barriers = 2};
  work.product_us = 380;
  work.chunk_product_us = 100;
  work.native_us = 390;
  work.collective_us = 160;
  return work;
}
/// Rates that are easy to add up.
constexpr GpuRates kRound = [] {
  GpuRates gpu = kH200;
  gpu.half_flops_per_us = 10;
  gpu.eighth_flops_per_us = 20;
  gpu.full_flops_per_us = 1;
  gpu.link_bytes_per_us = 100;
  gpu.pull_start_us = 30;
  gpu.pull_slowness = 2;
  gpu.barrier_us = 8;
  gpu.cut_us = 3;
  return gpu;
}();

TEST(Schedules, OnAGpuAreAddedUp) {
  Workload work = on_gpu();
  const Prediction us = predict(work, kRound).value();
  EXPECT_DOUBLE_EQ(us.serial_us, 380 + 160);
  EXPECT_DOUBLE_EQ(us.pipelined_us, 4 * 100 + 4 * 3 + 2 * 8) << "the products are longer";
  EXPECT_DOUBLE_EQ(us.native_us, 390);
  work.chunk_bytes = 10'000;
  EXPECT_DOUBLE_EQ(predict(work, kRound)->pipelined_us, 3 * 100 * 2 + 100 + 30) << "the copies are longer";
  work.pipelined_barriers = 5;
  EXPECT_DOUBLE_EQ(predict(work, kRound)->pipelined_us, 3 * 100 * 2 + 100 + 5 * 8) << "and their meetings";
}

TEST(Schedules, OnAGpuCountFlopsAndBytesWhereNoModelAnswers) {
  Workload work{.kind = DeviceKind::kCuda, .world = 4, .chunk_bytes = 5000, .chunk_flops = 1000};
  const Prediction half = predict(work, kRound).value();
  EXPECT_DOUBLE_EQ(half.serial_us, 4 * 100 + 3 * 50);
  EXPECT_DOUBLE_EQ(half.native_us, 4 * 100);
  work.element_bytes = 4;
  EXPECT_DOUBLE_EQ(predict(work, kRound)->serial_us, 4 * 1000 + 3 * 50) << "f32";
  work.element_bytes = 1;
  EXPECT_DOUBLE_EQ(predict(work, kRound)->serial_us, 4 * 50 + 3 * 50);
}

TEST(Schedules, OnAGpuEachWaitForASlowLink) {
  Workload work = on_gpu();
  work.link = std::chrono::microseconds(1000);
  const Prediction us = predict(work, kRound).value();
  EXPECT_DOUBLE_EQ(us.serial_us, 380 + 160 + 3000);
  EXPECT_DOUBLE_EQ(us.pipelined_us, 3000 + 3 * 40 * 2 + 100 + 30);
  EXPECT_DOUBLE_EQ(us.native_us, 3000 + 3 * 40 + 100);
}

TEST(Schedules, PushesHideBehindProducts) {
  GpuRates gpu = kRound;
  gpu.put_us = 1;
  gpu.put_cut_us = 3;
  gpu.sum.start_us = 5;
  gpu.vendor.launch_us = 3;
  gpu.memory_bytes_per_us = 100;
  // f32: a part takes 2 * 4 * 5 * 25 us, a half of it 500, and 100 bytes travel in 1 us.
  PushedScatter scatter{
      .world = 2, .rows = 4, .n = 5, .k = 25, .element_bytes = 4, .partial_bytes = 4, .ends_by_sums = true};
  EXPECT_DOUBLE_EQ(pushed_scatter_us(scatter, gpu), 2 * 1003 + 3 + 2.4) << "a sum of 80 bytes and 80 more";
  scatter.chunks = 2;
  EXPECT_DOUBLE_EQ(pushed_scatter_us(scatter, gpu), 4 * 503 + 2 * (3 + 1.2));
  scatter.ends_by_sums = false;
  EXPECT_DOUBLE_EQ(pushed_scatter_us(scatter, gpu), 4 * 503);
  scatter.world = 3;
  EXPECT_DOUBLE_EQ(pushed_scatter_us(scatter, gpu), 6 * 503);
  scatter.world = 4;
  EXPECT_DOUBLE_EQ(pushed_scatter_us(scatter, gpu), 6 * 503 + 1003) << "the middle part in one product";
  scatter.link = std::chrono::milliseconds(2);
  EXPECT_DOUBLE_EQ(pushed_scatter_us(scatter, gpu), 503 + 6 * 2001.4 + 5 + 503) << "the link alone counts";
}

// A chunk's 40 bytes are pushed in 1.4 us, and those that came are copied in 1.8. Those of the last chunk
// show.
TEST(Schedules, SumsThatAreGivenHideBehindProducts) {
  GpuRates gpu = kRound;
  gpu.put_us = 1;
  gpu.put_cut_us = 3;
  gpu.vendor.launch_us = 3;
  gpu.memory_bytes_per_us = 100;
  PushedScatter scatter{.world = 2,
                        .rows = 4,
                        .n = 5,
                        .k = 25,
                        .element_bytes = 4,
                        .partial_bytes = 4,
                        .chunks = 2,
                        .gives_all = true};
  EXPECT_DOUBLE_EQ(pushed_scatter_us(scatter, gpu), 4 * 503 + 1.4 + 1.8);
  scatter.ends_by_sums = true;
  EXPECT_DOUBLE_EQ(pushed_scatter_us(scatter, gpu), 4 * 503 + 2 * (3 + 1.2) + 1.4 + 1.8) << "two sums";
}

TEST(Schedules, AllReducesBehindBarriersHaveRounds) {
  Workload work = on_gpu();
  work.gives_all = true;
  work.rounds = 2;
  EXPECT_DOUBLE_EQ(predict(work, kRound)->serial_us, 380 + 160) << "as the model of the collective says";
  EXPECT_DOUBLE_EQ(predict(work, kRound)->pipelined_us, 4 * 100 + 2 * 4 * 3 + 2 * 8 + 3 * 40 * 2 / 2.0)
      << "half of the sums show";
  work.collective_us.reset();
  EXPECT_DOUBLE_EQ(predict(work, kRound)->serial_us, 380 + 2 * 3 * 40.0) << "the bytes go two ways";
}

TEST(Schedules, PushesTakeThePlaceOfBarriers) {
  Workload work = on_gpu();
  work.pushed_us = 401;
  EXPECT_DOUBLE_EQ(predict(work, kRound)->pipelined_us, 401);
}

TEST(Schedules, OverlapHidesAllButOnePieceOfTheShorter) {
  EXPECT_DOUBLE_EQ(overlap_saves_us(40'000, 1000, 4, kRound), 400 * 3 / 4.0 - 4 * 3);
  EXPECT_DOUBLE_EQ(overlap_saves_us(40'000, 100, 4, kRound), 100 * 3 / 4.0 - 4 * 3);
  EXPECT_LT(overlap_saves_us(100, 1000, 4, kRound), 0) << "it costs";
}

}  // namespace
}  // namespace tandem::cost
