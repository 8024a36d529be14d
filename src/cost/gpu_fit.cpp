#include "cost/gpu_fit.hpp"

#include <algorithm>
#include <cmath>

#include "base/format.hpp"

namespace tandem::cost {
namespace {

constexpr double kMostFactor = 4;
// What medians of a few calls scatter by. Starts are differences of such times.
constexpr double kRateNoise = 0.05;
constexpr double kStartNoise = 0.25;

double clamped(double factor, double noise) {
  if (!std::isfinite(factor)) return 1;
  // A start that comes out below 0 is one that is too short to tell.
  const double bounded = std::clamp(factor, 1 / kMostFactor, kMostFactor);
  return std::abs(bounded - 1) <= noise ? 1 : bounded;
}

/// Two sizes of the same work: a start, and so much for each further size of the short one.
struct Line {
  double start_us = 0;
  double us_of_short = 0;
};
struct Pair {
  GpuProbe short_one, long_one;
  double ratio;  ///< of their sizes
};
constexpr double kRatioOfDepths = 4;
constexpr double kRatioOfBytes = 8;
constexpr Pair kVendor = {GpuProbe::kVendorShort, GpuProbe::kVendorLong, kRatioOfDepths};
constexpr Pair kBF16 = {GpuProbe::kNativeBF16Short, GpuProbe::kNativeBF16Long, kRatioOfDepths};
constexpr Pair kBF16Rows = {GpuProbe::kNativeBF16RowsShort, GpuProbe::kNativeBF16RowsLong, kRatioOfDepths};
constexpr Pair kF16 = {GpuProbe::kNativeF16Short, GpuProbe::kNativeF16Long, kRatioOfDepths};
constexpr Pair kF16Rows = {GpuProbe::kNativeF16RowsShort, GpuProbe::kNativeF16RowsLong, kRatioOfDepths};
constexpr Pair kF8 = {GpuProbe::kNativeF8Short, GpuProbe::kNativeF8Long, kRatioOfDepths};
constexpr Pair kPush = {GpuProbe::kPushShort, GpuProbe::kPushLong, kRatioOfBytes};
constexpr Pair kPull = {GpuProbe::kPullShort, GpuProbe::kPullLong, kRatioOfBytes};
constexpr Pair kGather = {GpuProbe::kGatherShort, GpuProbe::kGatherLong, kRatioOfBytes};
constexpr Pair kSum = {GpuProbe::kSumShort, GpuProbe::kSumLong, kRatioOfBytes};

/// How many times as long the two parts take.
struct LineFactors {
  double start = 1;
  double rate = 1;
};

Line line_of(const GpuTimes& times, const Pair& pair) {
  const double us = (times[pair.long_one] - times[pair.short_one]) / (pair.ratio - 1);
  return {.start_us = times[pair.short_one] - us, .us_of_short = us};
}

LineFactors line_factors(const GpuTimes& times, const Pair& pair) {
  const GpuTimes& reference = reference_times();
  for (const GpuTimes* each : {&times, &reference}) {
    if (!each->knows(pair.short_one) || !each->knows(pair.long_one)) return {};
  }
  const Line here = line_of(times, pair);
  const Line there = line_of(reference, pair);
  return {.start = here.start_us / there.start_us, .rate = here.us_of_short / there.us_of_short};
}

double factor(const GpuTimes& times, GpuProbe probe) {
  const GpuTimes& reference = reference_times();
  return times.knows(probe) && reference.knows(probe) ? times[probe] / reference[probe] : 1;
}

double mean(double x, double y) {
  return (x + y) / 2;
}

void scale(KernelTimes& times, double factor) {
  times.launch_us *= factor;
  times.begin_us *= factor;
}

void scale(CollectiveTimes& times, double start, double rate) {
  times.start_us *= start;
  times.slowness *= rate;
  times.slowness_of_a_peer *= rate;
}

}  // namespace

// Plans predict alike whatever b's order is, which is each rank's own affair: so both orders count half.
GpuFactors factors_of(const GpuTimes& times) {
  const auto rate = [](double factor) { return clamped(factor, kRateNoise); };
  const auto start = [](double factor) { return clamped(factor, kStartNoise); };
  const LineFactors vendor = line_factors(times, kVendor);
  const LineFactors bf16 = line_factors(times, kBF16);
  const LineFactors bf16_rows = line_factors(times, kBF16Rows);
  const LineFactors f16 = line_factors(times, kF16);
  const LineFactors f16_rows = line_factors(times, kF16Rows);
  const LineFactors push = line_factors(times, kPush);
  const LineFactors pull = line_factors(times, kPull);
  const LineFactors gather = line_factors(times, kGather);
  const LineFactors sum = line_factors(times, kSum);
  const double link = rate(mean(push.rate, pull.rate));
  return {.vendor_tile = rate(vendor.rate),
          .vendor_start = start(vendor.start),
          .vendor_memory = rate(factor(times, GpuProbe::kVendorFewRows)),
          .large_product = rate(factor(times, GpuProbe::kVendorLarge)),
          .bf16_tile = rate(mean(bf16.rate, bf16_rows.rate)),
          .f16_tile = rate(mean(f16.rate, f16_rows.rate)),
          .f8_tile = rate(line_factors(times, kF8).rate),
          .native_start = start(mean(bf16.start, f16.start)),
          .link = link,
          .copy_start = start(mean(push.start, pull.start)),
          .barrier = start(factor(times, GpuProbe::kBarrier)),
          .memory = rate(factor(times, GpuProbe::kMemory)),
          .mailboxes = start(factor(times, GpuProbe::kMailboxes)),
          .gather_start = start(gather.start),
          .gather = rate(gather.rate / link),
          .sum_start = start(sum.start),
          .sum = rate(sum.rate / link)};
}

GpuRates rates_of(const GpuFactors& factors) {
  GpuRates gpu = kH200;
  gpu.vendor_slowness *= factors.vendor_tile;
  scale(gpu.vendor, factors.vendor_start);
  gpu.vendor_read_bytes_per_us /= factors.vendor_memory;
  gpu.read_bytes_per_us /= factors.vendor_memory;
  gpu.half_flops_per_us /= factors.large_product;
  gpu.eighth_flops_per_us /= factors.large_product;
  gpu.full_flops_per_us /= factors.large_product;
  gpu.native_slowness.bf16 *= factors.bf16_tile;
  gpu.native_slowness.f16 *= factors.f16_tile;
  gpu.native_slowness.f8 *= factors.f8_tile;
  scale(gpu.native, factors.native_start);
  gpu.link_bytes_per_us /= factors.link;
  for (double* us : {&gpu.pull_start_us, &gpu.push_start_us, &gpu.push_us, &gpu.put_us})
    *us *= factors.copy_start;
  gpu.barrier_us *= factors.barrier;
  gpu.memory_bytes_per_us /= factors.memory;
  gpu.by_mailboxes.start_us *= factors.mailboxes;
  scale(gpu.gather, factors.gather_start, factors.gather);
  scale(gpu.sum, factors.sum_start, factors.sum);
  return gpu;
}

std::vector<std::string> describe_gpu_rates(const GpuTimes& times) {
  const GpuRates here = rates_of(times);
  std::vector<std::string> lines;
  const auto say = [&](const char* what, double value, double reference, const char* unit) {
    const bool differs = std::abs(value - reference) > 1e-9 * reference;
    lines.push_back(fmt::format("{} {:.4g}{}{}", what, value, unit,
                                differs ? fmt::format(" (reference {:.4g})", reference) : ""));
  };
  const auto tiles = [&](const char* what, double value) {
    say(what, value, 1, " x as long as the reference's");
  };
  tiles("cuBLASLt's tiles", here.vendor_slowness);
  tiles("native tiles of bf16", here.native_slowness.bf16);
  tiles("native tiles of f16", here.native_slowness.f16);
  tiles("native tiles of f8", here.native_slowness.f8);
  constexpr double kGiga = 1e3;  // bytes a microsecond to GB/s
  constexpr double kTera = 1e6;
  say("large 16-bit products", here.half_flops_per_us / kTera, kH200.half_flops_per_us / kTera, " TFLOP/s");
  say("reads of right operands", here.vendor_read_bytes_per_us / kGiga,
      kH200.vendor_read_bytes_per_us / kGiga, " GB/s");
  say("memory", here.memory_bytes_per_us / kGiga, kH200.memory_bytes_per_us / kGiga, " GB/s");
  say("link", here.link_bytes_per_us / kGiga, kH200.link_bytes_per_us / kGiga, " GB/s");
  say("barrier", here.barrier_us, kH200.barrier_us, " us");
  say("start of a gather", here.gather.start_us, kH200.gather.start_us, " us");
  say("start of a sum", here.sum.start_us, kH200.sum.start_us, " us");
  return lines;
}

const GpuTimes& reference_times() {
  static const GpuTimes kTimes = [] {
    GpuTimes times;
    times.set(GpuProbe::kVendorShort, 28.3);
    times.set(GpuProbe::kVendorLong, 90.8);
    times.set(GpuProbe::kVendorFewRows, 47.9);
    times.set(GpuProbe::kVendorLarge, 676.1);
    times.set(GpuProbe::kNativeBF16Short, 27.9);
    times.set(GpuProbe::kNativeBF16Long, 83.8);
    times.set(GpuProbe::kNativeBF16RowsShort, 28.7);
    times.set(GpuProbe::kNativeBF16RowsLong, 85.1);
    times.set(GpuProbe::kNativeF16Short, 28.2);
    times.set(GpuProbe::kNativeF16Long, 84.7);
    times.set(GpuProbe::kNativeF16RowsShort, 28.3);
    times.set(GpuProbe::kNativeF16RowsLong, 85.6);
    times.set(GpuProbe::kNativeF8Short, 19.8);
    times.set(GpuProbe::kNativeF8Long, 45.9);
    times.set(GpuProbe::kPushShort, 22.8);
    times.set(GpuProbe::kPushLong, 97.6);
    times.set(GpuProbe::kPullShort, 23.4);
    times.set(GpuProbe::kPullLong, 102.1);
    times.set(GpuProbe::kBarrier, 8.0);
    times.set(GpuProbe::kMemory, 68.4);
    times.set(GpuProbe::kMailboxes, 9.6);
    times.set(GpuProbe::kGatherShort, 28.3);
    times.set(GpuProbe::kGatherLong, 135.8);
    times.set(GpuProbe::kSumShort, 33.8);
    times.set(GpuProbe::kSumLong, 155.7);
    return times;
  }();
  return kTimes;
}

}  // namespace tandem::cost
