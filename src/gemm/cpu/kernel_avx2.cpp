// Compiled with -mavx2 -mfma -mf16c: nothing here may run before the processor was asked
// (attach.cpp).

#include <immintrin.h>

#include "gemm/cpu/f16c_elements.hpp"
#include "gemm/cpu/tile_loop.hpp"

namespace tandem::gemm::cpu {
namespace {

struct Avx2 : F16cElements<Avx2> {
  using PairIsa = Avx2;
  static constexpr PanelForm kPairsForm = PanelForm::kTwoSteps;
  using Vec = __m256;
  static constexpr int kWidth = 8;
  static constexpr int kTileVecs = 2;  // 6 x 16: 12 sums, 2 columns and 1 row of 16 registers

  static Vec zero() { return _mm256_setzero_ps(); }
  static Vec broadcast(const std::byte* from) {
    return _mm256_broadcast_ss(reinterpret_cast<const float*>(from));
  }
  static Vec fma(Vec x, Vec y, Vec sum) { return _mm256_fmadd_ps(x, y, sum); }
  static Vec add(Vec x, Vec y) { return _mm256_add_ps(x, y); }

  static Vec load(const float* from) { return _mm256_loadu_ps(from); }
  static Vec load(const BF16* from) {
    const __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
    return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
  }
  static Vec load(const F16* from) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
  }
  static Vec load(const F8E4M3* from) {  // as f16 of an exponent that is 8 too small
    const __m128i bits = load_8_bits(from);
    const __m128i magnitude = _mm_and_si128(bits, _mm_set1_epi16(0x7f));
    const __m128i is_nan = _mm_cmpeq_epi16(magnitude, _mm_set1_epi16(0x7f));
    const __m128i sign = _mm_slli_epi16(_mm_sub_epi16(bits, magnitude), 8);
    const __m128i half = _mm_or_si128(_mm_slli_epi16(magnitude, 7), sign);
    const __m128i quiet = _mm_and_si128(is_nan, _mm_set1_epi16(0x7e00));
    return _mm256_mul_ps(_mm256_cvtph_ps(_mm_or_si128(half, quiet)), _mm256_set1_ps(256.0F));
  }
  static Vec load(const F8E5M2* from) { return _mm256_cvtph_ps(_mm_slli_epi16(load_8_bits(from), 8)); }
  static void store(float* to, Vec value) { _mm256_storeu_ps(to, value); }
  static void store(BF16* to, Vec value) {  // no NaN but the canonical one gets here, which this keeps
    const __m256i bits = _mm256_castps_si256(value);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i rounded = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    const __m256i narrow = _mm256_srli_epi32(rounded, 16);
    const __m128i packed =
        _mm_packus_epi32(_mm256_castsi256_si128(narrow), _mm256_extracti128_si256(narrow, 1));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), packed);
  }
  static void store(F16* to, Vec value) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm256_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT));
  }

  static Vec canonical(Vec value) {
    const Vec is_nan = _mm256_cmp_ps(value, value, _CMP_UNORD_Q);
    return _mm256_blendv_ps(value, _mm256_castsi256_ps(_mm256_set1_epi32(0x7fc00000)), is_nan);
  }
  static Vec interleave_low(Vec x, Vec y) {
    return _mm256_permute2f128_ps(_mm256_unpacklo_ps(x, y), _mm256_unpackhi_ps(x, y), 0x20);
  }
  static Vec interleave_high(Vec x, Vec y) {
    return _mm256_permute2f128_ps(_mm256_unpacklo_ps(x, y), _mm256_unpackhi_ps(x, y), 0x31);
  }

 private:
  static __m128i load_8_bits(const void* from) {
    return _mm_cvtepu8_epi16(_mm_loadl_epi64(static_cast<const __m128i*>(from)));
  }
};

}  // namespace

const TileKernels kTileAvx2 = {Avx2::kPairsForm, pack_by<Avx2>, multiply_by<Avx2>};

}  // namespace tandem::gemm::cpu
