#pragma once

#include <bitset>
#include <cstdint>
#include <tandem/base/error.hpp>
#include <tandem/bootstrap/group.hpp>
#include <tandem/cost/gpu_times.hpp>
#include <tandem/device/device.hpp>

namespace tandem::fused {

/// By cost::GpuProbe.
using ProbeSet = std::bitset<cost::kNumGpuProbes>;

/// How large the work of probes is. Lengths of pairs differ by the ratios that cost/gpu_fit.cpp counts with.
struct ProbeSizes {
  // One wave of tiles of 128x256, on GPUs of 110 multiprocessors or more.
  std::int64_t rows = 10 * 128;
  std::int64_t columns = 11 * 256;
  std::int64_t short_k = 2048;
  std::int64_t few_rows = 64;
  std::int64_t large_rows = 4096;
  std::int64_t large = 8192;              ///< columns and k
  std::int64_t short_bytes = 4 << 20;     ///< more than mailboxes hold
  std::int64_t few_bytes = 64 << 10;      ///< less
  std::int64_t memory_bytes = 128 << 20;  ///< more than caches hold, and at least twice short_bytes * 8
  int rounds = 7;
};

/// The probes whose work this device has the library's own or its vendor's best implementation for: no other
/// is what the rates are about.
[[nodiscard]] ProbeSet probes_of(const Device& device, const ProbeSizes& sizes);

/// Runs these probes, the same on every rank. Each time is the median of this rank's rounds, behind a barrier
/// and with cold caches. There are no times where a rank lacks the memory. Collective; blocks the host.
/// Errors: those of the device's memory, streams, products and collectives.
[[nodiscard]] Result<cost::GpuTimes> run_probes(const ProbeSet& wanted, const ProbeSizes& sizes, Group& group,
                                                Device& device);

/// measure_gpus() with work of these sizes.
[[nodiscard]] Result<void> measure_gpus_of(const ProbeSizes& sizes, Group& group, Device& device);

}  // namespace tandem::fused
