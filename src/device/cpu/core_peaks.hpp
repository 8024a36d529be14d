#pragma once

#include <cstddef>
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

/// 10^9 operations a second of the calling thread in a burst of about 30 us. What else ran on the core
/// meanwhile makes them fewer, so the most of several bursts is what the core can do. 0 where the probe
/// cannot be measured.
[[nodiscard]] double burst_gops(const PeakProbe& probe);

/// The sum of 64-bit words, read by the widest loads of the processor: what reading memory costs at least.
/// `bytes` begin at a multiple of 64 and are a multiple of 512.
[[nodiscard]] std::uint64_t sum_of_words(std::span<const std::byte> bytes);

/// What a core reaches in products of f32 and of bf16, in 10^9 operations a second.
struct CorePeaks {
  double fma_f32 = 0;   ///< by the widest form that the processor has
  double dot_bf16 = 0;  ///< by VDPBF16PS; 0 where the processor has none
};

/// Of the core on which a thread first asked. Measured once a process, in turns, in about 2 ms; threads that
/// ask meanwhile wait.
[[nodiscard]] const CorePeaks& core_peaks();

}  // namespace tandem::cpu
