// Compiled with -mavx512f -mavx512bw -mavx512vl -mavx512vnni: nothing here may run before the processor was
// asked.
// asked.

#include <immintrin.h>

#include "gemm/cpu/four_bit_tile.hpp"

namespace tandem::gemm::cpu {
namespace {

struct Avx512Vnni {
  using Ints = __m512i;
  using Floats = __m512;
  static constexpr std::int64_t kWidth = 16;
  static constexpr int kTileRows =
      8;  // 8 x 32: 16 sums, 4 halves of the weight and 1 of the rows, of 32 registers
  static constexpr int kTileVecs = 2;

  static Floats zero() { return _mm512_setzero_ps(); }
  static Floats broadcast(float value) { return _mm512_set1_ps(value); }
  static Floats load(const float* from) { return _mm512_loadu_ps(from); }
  static void store(float* to, Floats value) { _mm512_storeu_ps(to, value); }
  static Floats fma(Floats x, Floats y, Floats sum) { return _mm512_fmadd_ps(x, y, sum); }
  static Floats add(Floats x, Floats y) { return _mm512_add_ps(x, y); }
  static Floats divided(Floats x, Floats y) { return _mm512_div_ps(x, y); }
  static Floats smaller(Floats x, Floats y) { return _mm512_min_ps(x, y); }
  static Floats larger(Floats x, Floats y) { return _mm512_max_ps(x, y); }
  static Floats to_floats(Ints value) { return _mm512_cvtepi32_ps(value); }

  static Ints no_sum() { return _mm512_setzero_si512(); }
  static Ints plus(Ints x, Ints y) { return _mm512_add_epi32(x, y); }
  static Ints load_bytes(const std::byte* from) { return _mm512_load_si512(from); }
  static Ints low_halves(Ints both) { return _mm512_and_si512(both, _mm512_set1_epi8(15)); }
  static Ints high_halves(Ints both) {
    return _mm512_and_si512(_mm512_srli_epi16(both, 4), _mm512_set1_epi8(15));
  }
  template <class T>
  static Ints spread(const T* four_bytes) {
    std::int32_t value;
    std::memcpy(&value, four_bytes, 4);
    return _mm512_set1_epi32(value);
  }
  static Ints dot(Ints sum, Ints weight, Ints row) { return _mm512_dpbusd_epi32(sum, weight, row); }
  static Ints with_minus_8(const std::byte* sums) {
    const Ints wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(sums)));
    return _mm512_or_si512(wide, _mm512_set1_epi32(static_cast<int>(0xfff80000U)));
  }
  static Ints dot_of_pairs(Ints x, Ints y) { return _mm512_madd_epi16(x, y); }
  static Ints times_plus(const std::byte* values, std::int32_t factor, std::int32_t addend) {
    return _mm512_add_epi32(_mm512_mullo_epi32(_mm512_loadu_si512(values), _mm512_set1_epi32(factor)),
                            _mm512_set1_epi32(addend));
  }
  static void round_to_bytes(std::int8_t* to, Floats x, Floats factor, Floats zero) {
    const Floats scaled = _mm512_mul_ps(x, factor);
    const Floats whole = _mm512_roundscale_ps(scaled, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC);
    const Floats rest = _mm512_abs_ps(_mm512_sub_ps(scaled, whole));
    const __mmask16 is_half = _mm512_cmp_ps_mask(rest, broadcast(0.5F), _CMP_GE_OQ);
    const __mmask16 is_less = _mm512_cmp_ps_mask(scaled, _mm512_setzero_ps(), _CMP_LT_OQ);
    Floats rounded = _mm512_mask_add_ps(whole, is_half, whole, broadcast(1.0F));
    rounded = _mm512_mask_sub_ps(rounded, is_half & is_less, whole, broadcast(1.0F));
    const Ints q = _mm512_cvttps_epi32(_mm512_add_ps(rounded, zero));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm512_cvtsepi32_epi8(q));
  }
};

}  // namespace

const FourBitKernels kFourBitAvx512 = {quantize_row<Avx512Vnni>, multiply_panel<Avx512Vnni>,
                                       finish_row<Avx512Vnni>};

}  // namespace tandem::gemm::cpu
