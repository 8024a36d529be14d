#pragma once

#include <immintrin.h>

#include "gemm/cpu/f16c_elements.hpp"
#include "gemm/cpu/panels.hpp"

namespace tandem::gemm::cpu {

/// Vectors of 16 floats, for an Isa of register_tile.hpp. A template over the Isa for the reason given there.
/// Needs -mavx512f -mfma -mf16c.
template <class Isa>
struct Avx512Vectors : F16cElements<Isa> {
  using Vec = __m512;
  static constexpr int kWidth = 16;
  static constexpr int kTileVecs = 4;  // 6 x 64: 24 sums, 4 columns and 1 row of 32 registers

  static Vec zero() { return _mm512_setzero_ps(); }
  static Vec broadcast(const std::byte* from) {
    return _mm512_castsi512_ps(_mm512_set1_epi32(static_cast<int>(_mm_cvtsi128_si32(_mm_loadu_si32(from)))));
  }
  static Vec fma(Vec x, Vec y, Vec sum) { return _mm512_fmadd_ps(x, y, sum); }
  static Vec add(Vec x, Vec y) { return _mm512_add_ps(x, y); }

  static Vec load(const float* from) { return _mm512_loadu_ps(from); }
  static Vec load(const BF16* from) { return _mm512_castsi512_ps(_mm512_slli_epi32(load_16_bits(from), 16)); }
  static Vec load(const F16* from) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
  }
  static Vec load(const F8E4M3* from) {  // as f16 of an exponent that is 8 too small
    const __m256i bits = load_8_bits(from);
    const __m256i magnitude = _mm256_and_si256(bits, _mm256_set1_epi16(0x7f));
    const __m256i is_nan = _mm256_cmpeq_epi16(magnitude, _mm256_set1_epi16(0x7f));
    const __m256i sign = _mm256_slli_epi16(_mm256_sub_epi16(bits, magnitude), 8);
    const __m256i half = _mm256_or_si256(_mm256_slli_epi16(magnitude, 7), sign);
    const __m256i quiet = _mm256_and_si256(is_nan, _mm256_set1_epi16(0x7e00));
    return _mm512_mul_ps(_mm512_cvtph_ps(_mm256_or_si256(half, quiet)), _mm512_set1_ps(256.0F));
  }
  static Vec load(const F8E5M2* from) { return _mm512_cvtph_ps(_mm256_slli_epi16(load_8_bits(from), 8)); }

  static void store(float* to, Vec value) { _mm512_storeu_ps(to, value); }
  static void store(BF16* to, Vec value) {  // no NaN but the canonical one gets here, which this keeps
    const __m512i bits = _mm512_castps_si512(value);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i rounded = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to),
                        _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded, 16)));
  }
  static void store(F16* to, Vec value) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm512_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT));
  }

  static Vec canonical(Vec value) {
    const __mmask16 is_nan = _mm512_cmp_ps_mask(value, value, _CMP_UNORD_Q);
    return _mm512_mask_mov_ps(value, is_nan, _mm512_castsi512_ps(_mm512_set1_epi32(0x7fc00000)));
  }
  static Vec interleave_low(Vec x, Vec y) {
    const __m512i lanes = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    return _mm512_permutex2var_ps(x, lanes, y);
  }
  static Vec interleave_high(Vec x, Vec y) {
    const __m512i lanes = _mm512_setr_epi32(8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
    return _mm512_permutex2var_ps(x, lanes, y);
  }

 protected:
  static __m512i load_16_bits(const BF16* from) {
    return _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
  }

 private:
  static __m256i load_8_bits(const void* from) {
    return _mm256_cvtepu8_epi16(_mm_loadu_si128(static_cast<const __m128i*>(from)));
  }
};

}  // namespace tandem::gemm::cpu
