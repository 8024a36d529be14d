#pragma once

#include <immintrin.h>

#include <cstdint>
#include <tandem/base/numeric.hpp>

namespace tandem::gemm::cpu {

/// Single elements on processors that convert f16 in hardware, for an Isa of tile_loop.hpp. A template over
/// the Isa for the reason given there: each instruction set keeps its own copy. Needs -mf16c.
template <class Isa>
struct F16cElements {
  static float load_one(const float* from) { return *from; }
  static float load_one(const BF16* from) {
    return _mm_cvtss_f32(_mm_castsi128_ps(_mm_cvtsi32_si128(static_cast<int>(from->bits) << 16)));
  }
  static float load_one(const F16* from) { return _cvtsh_ss(from->bits); }
  static float load_one(const F8E4M3* from) { return to_f32(*from); }
  static float load_one(const F8E5M2* from) { return to_f32(*from); }
  static void store_one(float* to, float value) { *to = value; }
  static void store_one(BF16* to, float value) {
    const auto bits = static_cast<std::uint32_t>(_mm_cvtsi128_si32(_mm_castps_si128(_mm_set_ss(value))));
    to->bits = static_cast<std::uint16_t>((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16);
  }
  static void store_one(F16* to, float value) { to->bits = _cvtss_sh(value, _MM_FROUND_TO_NEAREST_INT); }

  // While it lives, subnormals are zeros.
  class Flushing {
   public:
    Flushing() : before_(_mm_getcsr()) { _mm_setcsr(before_ | kBothToZero); }
    ~Flushing() { _mm_setcsr(before_); }
    Flushing(const Flushing&) = delete;
    Flushing& operator=(const Flushing&) = delete;

   private:
    static constexpr unsigned kBothToZero = 0x8040;
    unsigned before_;
  };
};

}  // namespace tandem::gemm::cpu
