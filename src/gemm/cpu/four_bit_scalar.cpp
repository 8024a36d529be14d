#include <algorithm>
#include <cmath>

#include "gemm/cpu/four_bit_tile.hpp"

namespace tandem::gemm::cpu {
namespace {

/// One lane: four bytes are an unsigned number, its first byte the lowest, as on every processor that this
/// library runs on.
struct Scalar {
  using Ints = std::int32_t;
  using Floats = float;
  static constexpr std::int64_t kWidth = 1;
  static constexpr int kTileRows = 4;
  static constexpr int kTileVecs = 2;

  static Floats zero() { return 0; }
  static Floats broadcast(float value) { return value; }
  static Floats load(const float* from) { return *from; }
  static void store(float* to, Floats value) { *to = value; }
  static void store(BF16* to, Floats value) { *to = to_bf16(value); }
  static Floats or_nan_of(Floats y, Floats value) {
    return y == y ? value : std::numeric_limits<float>::quiet_NaN();
  }
  static Floats fma(Floats x, Floats y, Floats sum) { return std::fma(x, y, sum); }
  static Floats add(Floats x, Floats y) { return x + y; }
  static Floats divided(Floats x, Floats y) { return x / y; }
  static Floats smaller(Floats x, Floats y) { return x < y ? x : y; }
  static Floats larger(Floats x, Floats y) { return x > y ? x : y; }
  static Floats to_floats(Ints value) { return static_cast<float>(value); }

  static Ints broadcast(std::int32_t value) { return value; }
  static Ints no_sum() { return 0; }
  static Ints plus(Ints x, Ints y) { return x + y; }
  static Ints load_bytes(const std::byte* from) { return spread(from); }
  static Ints load_bytes_once(const std::byte* from) { return spread(from); }
  static Ints low_halves(Ints both) { return both & 0x0f0f0f0f; }
  static Ints high_halves(Ints both) { return (both >> 4) & 0x0f0f0f0f; }
  static Ints apart_high_halves(Ints both) { return high_halves(both); }
  static Ints joined(Ints low, Ints high) { return plus(low, high); }
  template <class T>
  static Ints spread(const T* four_bytes) {
    std::int32_t value;
    std::memcpy(&value, four_bytes, 4);
    return value;
  }
  static Ints dot(Ints sum, Ints weight, Ints row) {
    for (int i = 0; i < 4; ++i)
      sum += static_cast<std::uint8_t>(weight >> (8 * i)) * static_cast<std::int8_t>(row >> (8 * i));
    return sum;
  }
  static Ints with_minus_8(const std::byte* sums) {
    std::uint16_t value;
    std::memcpy(&value, sums, 2);
    return static_cast<std::int32_t>(0xfff80000U | value);
  }
  static Ints dot_of_pairs(Ints x, Ints y) {
    return static_cast<std::int16_t>(x) * static_cast<std::int16_t>(y) + (x >> 16) * (y >> 16);
  }
  static Ints times_plus(const std::byte* values, std::int32_t factor, std::int32_t addend) {
    return spread(values) * factor + addend;
  }
  static Ints rounded(Floats x, Floats factor, Ints zero) {
    const float q = std::round(x * factor);
    return q == q ? std::clamp(static_cast<Ints>(q) + zero, -128, 127) : 0;  // nobody sees a NaN's
  }
  static void store_bytes(std::int8_t* to, Ints q) { *to = static_cast<std::int8_t>(q); }
  static std::int32_t total(Ints sums) { return sums; }
};

}  // namespace

const FourBitKernels kFourBitScalar = kernels_of<Scalar>();

}  // namespace tandem::gemm::cpu
