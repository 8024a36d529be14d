// Compiled with -mavx2 -mfma: nothing here may run before the processor was asked (core_peaks.cpp).

#include <immintrin.h>

#include "device/cpu/probe_loop.hpp"

namespace tandem::cpu {
namespace {

struct Fma {
  using Lane = float;
  using Sum = __m256;
  static constexpr int kSums = 12;  // and two factors, of 16 registers
  static constexpr int kLanes = 8;
  static constexpr int kProducts = 1;
  static __m256 sum_of(float value) { return _mm256_set1_ps(value); }
  static __m256 ones(int zero) { return _mm256_set1_ps(1.0F + static_cast<float>(zero)); }
  static __m256 step(__m256 sum, __m256 x, __m256 y) { return _mm256_fmadd_ps(x, y, sum); }
};

struct Words256 {
  using Words = __m256i;
  static Words load(const std::byte* from) {
    return _mm256_load_si256(reinterpret_cast<const __m256i*>(from));
  }
  static Words add(Words x, Words y) { return _mm256_add_epi64(x, y); }
};

}  // namespace

constinit const ProbeLoop kFma256 = kProbeLoop<Fma>;
constinit const WordSum kWordSum256 = word_sum<Words256>;

}  // namespace tandem::cpu
