// Compiled with -mavx512f -mavx512bw -mavx512vl -mavx512vnni: nothing here may run before the processor was
// asked.

#include <immintrin.h>

#include "gemm/cpu/four_bit_tile.hpp"

namespace tandem::gemm::cpu {
namespace {

struct Avx512Vnni {
  using Ints = __m512i;
  using Floats = __m512;
  static constexpr std::int64_t kWidth = 16;
  // 6 x 32: 12 sums of a group and 12 of all, 4 halves of the weight, a mask and 1 of the rows, of 32
  // registers. With 8 rows the sums of all groups would be in memory: 0.92 of the speed in groups of 32
  // (EPYC, Zen 4, November 2026).
  static constexpr int kTileRows = 6;
  static constexpr int kTileVecs = 2;

  static Floats zero() { return _mm512_setzero_ps(); }
  static Floats broadcast(float value) { return _mm512_set1_ps(value); }
  static Floats load(const float* from) { return _mm512_loadu_ps(from); }
  static void store(float* to, Floats value) { _mm512_storeu_ps(to, value); }
  static void store(BF16* to, Floats value) {
    const Ints bits = _mm512_castps_si512(value);
    const Ints is_odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const Ints rounded = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), is_odd);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to),
                        _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded, 16)));
  }
  static Floats or_nan_of(Floats y, Floats value) {
    return _mm512_mask_mov_ps(value, _mm512_cmp_ps_mask(y, y, _CMP_UNORD_Q),
                              broadcast(std::numeric_limits<float>::quiet_NaN()));
  }
  static Floats fma(Floats x, Floats y, Floats sum) { return _mm512_fmadd_ps(x, y, sum); }
  static Floats add(Floats x, Floats y) { return _mm512_add_ps(x, y); }
  static Floats divided(Floats x, Floats y) { return _mm512_div_ps(x, y); }
  static Floats smaller(Floats x, Floats y) { return _mm512_min_ps(x, y); }
  static Floats larger(Floats x, Floats y) { return _mm512_max_ps(x, y); }
  static Floats to_floats(Ints value) { return _mm512_cvtepi32_ps(value); }

  static Ints broadcast(std::int32_t value) { return _mm512_set1_epi32(value); }
  static Ints no_sum() { return _mm512_setzero_si512(); }
  static Ints plus(Ints x, Ints y) { return _mm512_add_epi32(x, y); }
  static Ints load_bytes(const std::byte* from) { return _mm512_load_si512(from); }
  /// For few products of each: gcc would load anew for each half.
  static Ints load_bytes_once(const std::byte* from) {
    Ints bytes = load_bytes(from);
    asm("" : "+v"(bytes));
    return bytes;
  }
  static Ints low_halves(Ints both) { return _mm512_and_si512(both, _mm512_set1_epi8(15)); }
  static Ints high_halves(Ints both) {
    return _mm512_and_si512(_mm512_srli_epi16(both, 4), _mm512_set1_epi8(15));
  }
  // 16 times as large, which spares a shift; a sum of kMostGroup / 2 of them fits.
  static Ints apart_high_halves(Ints both) { return _mm512_and_si512(both, _mm512_set1_epi8(-16)); }
  static Ints joined(Ints low, Ints high) { return plus(low, _mm512_srai_epi32(high, 4)); }
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
  static Ints rounded(Floats x, Floats factor, Ints zero) {
    const Floats scaled = _mm512_mul_ps(x, factor);
    const Ints sign = _mm512_and_si512(_mm512_castps_si512(scaled), _mm512_set1_epi32(INT32_MIN));
    const Ints below_half = _mm512_castps_si512(broadcast(kBelowHalf));
    const Floats outward = _mm512_add_ps(scaled, _mm512_castsi512_ps(_mm512_or_si512(sign, below_half)));
    const Ints q = plus(_mm512_cvttps_epi32(outward), zero);
    return _mm512_max_epi32(_mm512_min_epi32(q, _mm512_set1_epi32(127)), _mm512_set1_epi32(-128));
  }
  static void store_bytes(std::int8_t* to, Ints q) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm512_cvtepi32_epi8(q));
  }
  static std::int32_t total(Ints sums) { return _mm512_reduce_add_epi32(sums); }
};

}  // namespace

const FourBitKernels kFourBitAvx512 = kernels_of<Avx512Vnni>();

}  // namespace tandem::gemm::cpu
