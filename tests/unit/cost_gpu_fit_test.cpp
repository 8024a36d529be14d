// What rates follow from what was measured on GPUs.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "cost/gpu_fit.hpp"

namespace tandem::cost {
namespace {

/// The reference machine's times, these probes changed.
GpuTimes changed(const std::vector<std::pair<GpuProbe, double>>& us) {
  GpuTimes times = reference_times();
  for (const auto& [probe, value] : us) times.set(probe, value);
  return times;
}

/// Two sizes of which the second is `ratio` times as large, on a machine that takes so many times as long.
void slow_down(GpuTimes& times, GpuProbe short_one, GpuProbe long_one, double ratio, double start,
               double rate) {
  const double us = (times[long_one] - times[short_one]) / (ratio - 1);
  const double start_us = times[short_one] - us;
  times.set(short_one, start * start_us + rate * us);
  times.set(long_one, start * start_us + rate * ratio * us);
}

TEST(GpuFit, KnowsTheReferenceMachine) {
  for (std::size_t i = 0; i < kNumGpuProbes; ++i)
    EXPECT_TRUE(reference_times().knows(static_cast<GpuProbe>(i))) << to_string(static_cast<GpuProbe>(i));
  EXPECT_EQ(factors_of(reference_times()), GpuFactors());
}

TEST(GpuFit, LeavesAloneWhatWasNotMeasured) {
  EXPECT_EQ(factors_of(GpuTimes()), GpuFactors());
  GpuTimes one;
  one.set(GpuProbe::kVendorLong, 1000);
  one.set(GpuProbe::kBarrier, 2 * reference_times()[GpuProbe::kBarrier]);
  GpuFactors expected;
  expected.barrier = 2;
  EXPECT_EQ(factors_of(one), expected) << "a pair needs both, a single probe stands alone";
  const GpuRates rates = rates_of(GpuTimes());
  EXPECT_EQ(rates.link_bytes_per_us, kH200.link_bytes_per_us);
  EXPECT_EQ(rates.barrier_us, kH200.barrier_us);
}

TEST(GpuFit, RecoversFactorsFromSyntheticTimes) {
  GpuTimes times = reference_times();
  slow_down(times, GpuProbe::kVendorShort, GpuProbe::kVendorLong, 4, 1.5, 1.3);
  for (const auto& [first, second] :
       {std::pair{GpuProbe::kNativeBF16Short, GpuProbe::kNativeBF16Long},
        std::pair{GpuProbe::kNativeBF16RowsShort, GpuProbe::kNativeBF16RowsLong}})
    slow_down(times, first, second, 4, 2, 1.2);
  for (const auto& [first, second] : {std::pair{GpuProbe::kNativeF16Short, GpuProbe::kNativeF16Long},
                                      std::pair{GpuProbe::kNativeF16RowsShort, GpuProbe::kNativeF16RowsLong}})
    slow_down(times, first, second, 4, 2, 0.8);
  slow_down(times, GpuProbe::kNativeF8Short, GpuProbe::kNativeF8Long, 4, 1, 1.4);
  for (const auto& [first, second] : {std::pair{GpuProbe::kPushShort, GpuProbe::kPushLong},
                                      std::pair{GpuProbe::kPullShort, GpuProbe::kPullLong}})
    slow_down(times, first, second, 8, 1.6, 2);
  slow_down(times, GpuProbe::kGatherShort, GpuProbe::kGatherLong, 8, 0.6, 3);
  slow_down(times, GpuProbe::kSumShort, GpuProbe::kSumLong, 8, 1.7, 2);
  for (const auto& [probe, factor] :
       {std::pair{GpuProbe::kVendorFewRows, 1.25}, std::pair{GpuProbe::kVendorLarge, 0.75},
        std::pair{GpuProbe::kBarrier, 3.0}, std::pair{GpuProbe::kMemory, 0.5},
        std::pair{GpuProbe::kMailboxes, 1.5}})
    times.set(probe, factor * times[probe]);

  const GpuFactors found = factors_of(times);
  constexpr double kClose = 1e-9;
  EXPECT_NEAR(found.vendor_tile, 1.3, kClose);
  EXPECT_NEAR(found.vendor_start, 1.5, kClose);
  EXPECT_NEAR(found.vendor_memory, 1.25, kClose);
  EXPECT_NEAR(found.large_product, 0.75, kClose);
  EXPECT_NEAR(found.bf16_tile, 1.2, kClose);
  EXPECT_NEAR(found.f16_tile, 0.8, kClose);
  EXPECT_NEAR(found.f8_tile, 1.4, kClose);
  EXPECT_NEAR(found.native_start, 2, kClose);
  EXPECT_NEAR(found.link, 2, kClose);
  EXPECT_NEAR(found.copy_start, 1.6, kClose);
  EXPECT_NEAR(found.barrier, 3, kClose);
  EXPECT_NEAR(found.memory, 0.5, kClose);
  EXPECT_NEAR(found.mailboxes, 1.5, kClose);
  EXPECT_NEAR(found.gather_start, 0.6, kClose);
  EXPECT_NEAR(found.gather, 1.5, kClose) << "beside the link, which takes twice as long";
  EXPECT_NEAR(found.sum_start, 1.7, kClose);
  EXPECT_EQ(found.sum, 1) << "all of it is the link's";
}

TEST(GpuFit, ScalesTheConstants) {
  GpuFactors factors;
  factors.vendor_tile = 1.25;
  factors.vendor_start = 2;
  factors.vendor_memory = 2;
  factors.large_product = 4;
  factors.f8_tile = 3;
  factors.native_start = 0.5;
  factors.link = 2;
  factors.copy_start = 1.5;
  factors.gather_start = 2;
  factors.gather = 1.5;
  const GpuRates rates = rates_of(factors);
  EXPECT_DOUBLE_EQ(rates.vendor_slowness, 1.25 * kH200.vendor_slowness);
  EXPECT_DOUBLE_EQ(rates.vendor.launch_us, 2 * kH200.vendor.launch_us);
  EXPECT_DOUBLE_EQ(rates.vendor_read_bytes_per_us, kH200.vendor_read_bytes_per_us / 2);
  EXPECT_DOUBLE_EQ(rates.read_bytes_per_us, kH200.read_bytes_per_us / 2);
  EXPECT_DOUBLE_EQ(rates.half_flops_per_us, kH200.half_flops_per_us / 4);
  EXPECT_DOUBLE_EQ(rates.native_slowness.f8, 3 * kH200.native_slowness.f8);
  EXPECT_DOUBLE_EQ(rates.native_slowness.bf16, kH200.native_slowness.bf16);
  EXPECT_DOUBLE_EQ(rates.native.begin_us, kH200.native.begin_us / 2);
  EXPECT_DOUBLE_EQ(rates.link_bytes_per_us, kH200.link_bytes_per_us / 2);
  for (double GpuRates::*us :
       {&GpuRates::pull_start_us, &GpuRates::push_start_us, &GpuRates::push_us, &GpuRates::put_us})
    EXPECT_DOUBLE_EQ(rates.*us, 1.5 * kH200.*us);
  EXPECT_DOUBLE_EQ(rates.gather.start_us, 2 * kH200.gather.start_us);
  EXPECT_DOUBLE_EQ(rates.gather.slowness, 1.5 * kH200.gather.slowness);
  EXPECT_DOUBLE_EQ(rates.sum.start_us, kH200.sum.start_us);
}

TEST(GpuFit, StaysWithinAQuarterAndFourTimes) {
  const double barrier_us = reference_times()[GpuProbe::kBarrier];
  const double memory_us = reference_times()[GpuProbe::kMemory];
  const GpuFactors slow =
      factors_of(changed({{GpuProbe::kBarrier, 100 * barrier_us}, {GpuProbe::kMemory, 5 * memory_us}}));
  EXPECT_EQ(slow.barrier, 4);
  EXPECT_EQ(slow.memory, 4);
  const GpuFactors quick =
      factors_of(changed({{GpuProbe::kBarrier, barrier_us / 100}, {GpuProbe::kMemory, memory_us / 5}}));
  EXPECT_EQ(quick.barrier, 0.25);
  EXPECT_EQ(quick.memory, 0.25);
  // The long one no longer than the short one: a rate that is not one, and a start of more than all.
  const double short_us = reference_times()[GpuProbe::kPushShort];
  const GpuFactors odd =
      factors_of(changed({{GpuProbe::kPushLong, short_us / 2}, {GpuProbe::kPullLong, short_us / 2}}));
  EXPECT_EQ(odd.link, 0.25);
  EXPECT_GT(odd.copy_start, 2);
}

TEST(GpuFit, TakesSmallDifferencesForNoise) {
  GpuTimes times = reference_times();
  for (std::size_t i = 0; i < kNumGpuProbes; ++i) {
    const auto probe = static_cast<GpuProbe>(i);
    times.set(probe, 1.03 * times[probe]);
  }
  EXPECT_EQ(factors_of(times), GpuFactors());
  EXPECT_NE(factors_of(changed({{GpuProbe::kMemory, 1.06 * times[GpuProbe::kMemory]}})).memory, 1);
}

TEST(GpuFit, IsDescribedWithWhatDiffers) {
  const auto lines =
      describe_gpu_rates(changed({{GpuProbe::kBarrier, 2 * reference_times()[GpuProbe::kBarrier]}}));
  std::string all;
  for (const std::string& line : lines) all += line + "\n";
  EXPECT_NE(all.find("barrier 20 us (reference 10)\n"), std::string::npos) << all;
  EXPECT_NE(all.find("link 360 GB/s\n"), std::string::npos) << all;
}

}  // namespace
}  // namespace tandem::cost
