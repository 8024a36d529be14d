// Compiled with -mavx2 -mfma: nothing here may run before the processor was asked.

#include <immintrin.h>

#include "gemm/cpu/four_bit_tile.hpp"

namespace tandem::gemm::cpu {
namespace {

struct Avx2 {
  using Ints = __m256i;
  using Floats = __m256;
  static constexpr std::int64_t kWidth = 8;
  static constexpr int kTileRows = 4;  // 4 x 16: 8 sums, 4 halves of the weight and 2 more, of 16 registers
  static constexpr int kTileVecs = 2;

  static Floats zero() { return _mm256_setzero_ps(); }
  static Floats broadcast(float value) { return _mm256_set1_ps(value); }
  static Floats load(const float* from) { return _mm256_loadu_ps(from); }
  static void store(float* to, Floats value) { _mm256_storeu_ps(to, value); }
  static void store(BF16* to, Floats value) {
    const Ints bits = _mm256_castps_si256(value);
    const Ints is_odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const Ints rounded = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), is_odd);
    const Ints high = _mm256_srli_epi32(rounded, 16);
    const __m128i narrow = _mm_packus_epi32(_mm256_castsi256_si128(high), _mm256_extracti128_si256(high, 1));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), narrow);
  }
  static Floats or_nan_of(Floats y, Floats value) {
    return _mm256_blendv_ps(value, broadcast(std::numeric_limits<float>::quiet_NaN()),
                            _mm256_cmp_ps(y, y, _CMP_UNORD_Q));
  }
  static Floats fma(Floats x, Floats y, Floats sum) { return _mm256_fmadd_ps(x, y, sum); }
  static Floats add(Floats x, Floats y) { return _mm256_add_ps(x, y); }
  static Floats divided(Floats x, Floats y) { return _mm256_div_ps(x, y); }
  static Floats smaller(Floats x, Floats y) { return _mm256_min_ps(x, y); }
  static Floats larger(Floats x, Floats y) { return _mm256_max_ps(x, y); }
  static Floats to_floats(Ints value) { return _mm256_cvtepi32_ps(value); }

  static Ints broadcast(std::int32_t value) { return _mm256_set1_epi32(value); }
  static Ints no_sum() { return _mm256_setzero_si256(); }
  static Ints plus(Ints x, Ints y) { return _mm256_add_epi32(x, y); }
  static Ints load_bytes(const std::byte* from) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  }
  static Ints load_bytes_once(const std::byte* from) { return load_bytes(from); }
  static Ints low_halves(Ints both) { return _mm256_and_si256(both, _mm256_set1_epi8(15)); }
  static Ints high_halves(Ints both) {
    return _mm256_and_si256(_mm256_srli_epi16(both, 4), _mm256_set1_epi8(15));
  }
  static Ints apart_high_halves(Ints both) { return high_halves(both); }
  static Ints joined(Ints low, Ints high) { return plus(low, high); }
  template <class T>
  static Ints spread(const T* four_bytes) {
    std::int32_t value;
    std::memcpy(&value, four_bytes, 4);
    return _mm256_set1_epi32(value);
  }
  // 15 * 128 * 2 fits in 16 bits.
  static Ints dot(Ints sum, Ints weight, Ints row) {
    const Ints pairs = _mm256_maddubs_epi16(weight, row);
    return _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
  }
  static Ints with_minus_8(const std::byte* sums) {
    const Ints wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(sums)));
    return _mm256_or_si256(wide, _mm256_set1_epi32(static_cast<int>(0xfff80000U)));
  }
  static Ints dot_of_pairs(Ints x, Ints y) { return _mm256_madd_epi16(x, y); }
  static Ints times_plus(const std::byte* values, std::int32_t factor, std::int32_t addend) {
    return _mm256_add_epi32(_mm256_mullo_epi32(load_bytes(values), _mm256_set1_epi32(factor)),
                            _mm256_set1_epi32(addend));
  }
  static Ints rounded(Floats x, Floats factor, Ints zero) {
    const Floats scaled = _mm256_mul_ps(x, factor);
    const Floats sign = _mm256_and_ps(scaled, broadcast(-0.0F));
    const Floats outward = _mm256_add_ps(scaled, _mm256_or_ps(sign, broadcast(kBelowHalf)));
    const Ints q = plus(_mm256_cvttps_epi32(outward), zero);
    return _mm256_max_epi32(_mm256_min_epi32(q, _mm256_set1_epi32(127)), _mm256_set1_epi32(-128));
  }
  static void store_bytes(std::int8_t* to, Ints q) {
    const __m128i narrow = _mm_packs_epi32(_mm256_castsi256_si128(q), _mm256_extracti128_si256(q, 1));
    _mm_storel_epi64(reinterpret_cast<__m128i*>(to), _mm_packs_epi16(narrow, narrow));
  }
  static std::int32_t total(Ints sums) {
    std::int32_t lanes[8];
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(lanes), sums);
    std::int32_t sum = 0;
    for (const std::int32_t lane : lanes) sum += lane;
    return sum;
  }
};

}  // namespace

const FourBitKernels kFourBitAvx2 = kernels_of<Avx2>();

}  // namespace tandem::gemm::cpu
