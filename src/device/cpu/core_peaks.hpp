#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace tandem::cpu {

/// A loop of one instruction.
struct ProbeLoop {
  double ops_per_round = 0;  ///< a multiplication and an addition are two
  /// Does so many rounds, and returns what its sums grew by: the number of products, each of them 1.
  double (*run)(std::int64_t rounds) = nullptr;
};

/// An instruction whose rate bounds products, in one width.
struct PeakProbe {
  std::string_view name;     ///< "fma_f32", "dot_bf16", "dot_u8s8" or "tile_bf16"
  std::string_view width;    ///< bits of its registers: "512" or "256"; "scalar", "amx"
  std::string_view why_not;  ///< why it cannot be measured here; empty where it can
  ProbeLoop loop;            ///< empty for "amx"
};

/// All of them, the widest first for each name. The processor is asked once.
[[nodiscard]] std::span<const PeakProbe> peak_probes();

/// 10^9 operations a second of the calling thread in the fastest of so many bursts of about 30 us: what comes
/// between on a core that others use too does not count. 0 where the probe cannot be measured.
[[nodiscard]] double measure_gops(const PeakProbe& probe, int bursts);

/// What a core reaches in products of f32 and of bf16, in 10^9 operations a second.
struct CorePeaks {
  double fma_f32 = 0;   ///< by the widest form that the processor has
  double dot_bf16 = 0;  ///< by VDPBF16PS; 0 where the processor has none
};

/// Of the core on which a thread first asked. Measured once a process, in turns, in about 2 ms; threads that
/// ask meanwhile wait.
[[nodiscard]] const CorePeaks& core_peaks();

}  // namespace tandem::cpu
