#include "device/cpu/core_peaks.hpp"

#include <cpuid.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>

#include "device/cpu/probe_loop.hpp"
#include "device/cpu/processor.hpp"

namespace tandem::cpu {
namespace {

/// As the compiler makes it for every processor: four lanes, multiplied and then added.
struct Portable {
  using Lane = float;
  using Sum = float __attribute__((vector_size(16)));
  static constexpr int kSums = 12;
  static constexpr int kLanes = 4;
  static constexpr int kProducts = 1;
  static Sum sum_of(float value) { return Sum{} + value; }
  static Sum ones(int zero) { return Sum{} + (1.0F + static_cast<float>(zero)); }
  static Sum step(Sum sum, Sum x, Sum y) { return sum + x * y; }
};

struct PortableWords {
  using Words = std::uint64_t __attribute__((vector_size(16)));
  static Words load(const std::byte* from) {
    Words words;
    std::memcpy(&words, from, sizeof(words));
    return words;
  }
  static Words add(Words x, Words y) { return x + y; }
};
constexpr WordSum kWordSumPortable = word_sum<PortableWords>;

/// The beginning of what best_isa() says of processors with AVX-512: "avx512", "avx512_bf16".
constexpr std::string_view kAvx512 = "avx512";

bool has_amx_bf16() {
  constexpr unsigned kFeatures = 7;
  constexpr unsigned kAmxBf16 = 1U << 22U;
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  return __get_cpuid_count(kFeatures, 0, &eax, &ebx, &ecx, &edx) != 0 && (edx & kAmxBf16) != 0;
}

using Probes = std::array<PeakProbe, 8>;

Probes make_probes() {
  const bool has_avx512 = best_isa().starts_with(kAvx512);
  const auto unless = [](bool has, std::string_view why_not) { return has ? std::string_view() : why_not; };
  const std::string_view no_512 = unless(has_avx512, "this processor has no AVX-512");
  const std::string_view no_256 = unless(best_isa() != "scalar", "this processor has no AVX2 with FMA");
  const std::string_view no_bf16 =
      unless(has_avx512 && __builtin_cpu_supports("avx512bf16"), "this processor has no AVX512_BF16");
  const std::string_view no_vnni =
      unless(has_avx512 && __builtin_cpu_supports("avx512vnni"), "this processor has no AVX512_VNNI");
  const std::string_view no_amx =
      has_amx_bf16() ? "this processor has AMX, which tandem does not measure" : "this processor has no AMX";
  return {{{"fma_f32", "512", no_512, kFma512},
           {"fma_f32", "256", no_256, kFma256},
           {"fma_f32", "scalar", {}, kProbeLoop<Portable>},
           {"dot_bf16", "512", no_bf16, kDotBf16In512},
           {"dot_bf16", "256", no_bf16, kDotBf16In256},
           {"dot_u8s8", "512", no_vnni, kDotU8s8In512},
           {"dot_u8s8", "256", no_vnni, kDotU8s8In256},
           {"tile_bf16", "amx", no_amx, {}}}};
}

/// The first one of its name that can be measured: its widest form. Null where there is none.
const PeakProbe* widest(std::string_view name) {
  const auto probes = peak_probes();
  const auto found = std::find_if(probes.begin(), probes.end(), [&](const PeakProbe& probe) {
    return probe.name == name && probe.why_not.empty();
  });
  return found == probes.end() ? nullptr : &*found;
}

/// In turns: a clock that changes while they run does so for both.
CorePeaks measure_core_peaks() {
  constexpr int kTurns = 24;
  const PeakProbe* const fma = widest("fma_f32");
  const PeakProbe* const dot = widest("dot_bf16");
  CorePeaks peaks;
  for (int turn = 0; turn < kTurns; ++turn) {
    peaks.fma_f32 = std::max(peaks.fma_f32, burst_gops(*fma));
    if (dot != nullptr) peaks.dot_bf16 = std::max(peaks.dot_bf16, burst_gops(*dot));
  }
  return peaks;
}

}  // namespace

std::span<const PeakProbe> peak_probes() {
  static const Probes probes = make_probes();
  return probes;
}

double burst_gops(const PeakProbe& probe) {
  using Clock = std::chrono::steady_clock;
  constexpr std::int64_t kRounds = 8192;
  if (!probe.why_not.empty()) return 0;
  const auto begin = Clock::now();
  // The compiler does not know what a function behind a pointer does, so it makes the call.
  probe.loop.run(kRounds);
  const double ns = std::chrono::duration<double, std::nano>(Clock::now() - begin).count();
  return ns > 0 ? probe.loop.ops_per_round * static_cast<double>(kRounds) / ns : 0;
}

std::uint64_t sum_of_words(std::span<const std::byte> bytes) {
  static const WordSum sum = best_isa().starts_with(kAvx512) ? kWordSum512
                             : best_isa() == "avx2"          ? kWordSum256
                                                             : kWordSumPortable;
  return sum(bytes.data(), bytes.size());
}

const CorePeaks& core_peaks() {
  static const CorePeaks peaks = measure_core_peaks();
  return peaks;
}

}  // namespace tandem::cpu
