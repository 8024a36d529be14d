#pragma once

#include <tandem/cost/gpu_times.hpp>

#include "cost/machine.hpp"

namespace tandem::cost {

/// What the work of GpuProbe takes on the machine that kH200 describes, measured as on any other.
/// Source:  bench/results/h200_x2_gpu_times.json
[[nodiscard]] const GpuTimes& reference_times();

/// How many times as long work takes here as on that machine, by kinds of work. 1 where it was not measured,
/// and where the difference is no larger than what a few calls scatter by; from 1/4 to 4 otherwise.
struct GpuFactors {
  double vendor_tile = 1;
  double vendor_start = 1;  ///< of a kernel and of each tile
  double vendor_memory = 1;
  double large_product = 1;
  double bf16_tile = 1;
  double f16_tile = 1;
  double f8_tile = 1;
  double native_start = 1;
  double link = 1;
  double copy_start = 1;
  double barrier = 1;
  double memory = 1;
  double mailboxes = 1;
  double gather_start = 1;
  double gather = 1;  ///< beside the link's
  double sum_start = 1;
  double sum = 1;
  friend bool operator==(const GpuFactors&, const GpuFactors&) = default;
};
[[nodiscard]] GpuFactors factors_of(const GpuTimes& times);

/// The reference machine's rates, as the factors change them.
[[nodiscard]] GpuRates rates_of(const GpuFactors& factors);
/// By what was measured.
[[nodiscard]] inline GpuRates rates_of(const GpuTimes& times) {
  return rates_of(factors_of(times));
}

}  // namespace tandem::cost
