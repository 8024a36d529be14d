// Compiled with -mavx512bf16: nothing here may run before the processor was asked (attach.cpp).
// Only for products that add in pairs.

#include "gemm/cpu/avx512_vectors.hpp"
#include "gemm/cpu/tile_loop.hpp"

namespace tandem::gemm::cpu {
namespace {

struct Avx512Bf16 : Avx512Vectors<Avx512Bf16> {
  static constexpr PanelForm kPairsForm = PanelForm::kPairs;

  /// sum + odd * odd, rounded, + even * even, rounded, with subnormals as zeros.
  static Vec dot(Vec row, Vec column, Vec sum) {
    return _mm512_dpbf16_ps(sum, as_pairs(row), as_pairs(column));
  }
  static float pair(std::uint32_t even, std::uint32_t odd) {
    return _mm_cvtss_f32(_mm_castsi128_ps(_mm_cvtsi32_si128(static_cast<int>(even | odd << 16))));
  }
  static Vec zip(const BF16* even, const BF16* odd) {
    return _mm512_castsi512_ps(_mm512_or_si512(load_16_bits(even), _mm512_slli_epi32(load_16_bits(odd), 16)));
  }
  static Vec load_pairs(const BF16* from) { return _mm512_loadu_ps(static_cast<const void*>(from)); }

 private:
  static __m512bh as_pairs(Vec value) { return reinterpret_cast<__m512bh>(value); }
};

}  // namespace

const TileKernels kTileAvx512Bf16 = {Avx512Bf16::kPairsForm, pack_pairs<Avx512Bf16>,
                                     multiply_pairs<Avx512Bf16>};

}  // namespace tandem::gemm::cpu
