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
  static Floats fma(Floats x, Floats y, Floats sum) { return std::fma(x, y, sum); }
  static Floats add(Floats x, Floats y) { return x + y; }
  static Floats divided(Floats x, Floats y) { return x / y; }
  static Floats smaller(Floats x, Floats y) { return x < y ? x : y; }
  static Floats larger(Floats x, Floats y) { return x > y ? x : y; }
  static Floats to_floats(Ints value) { return static_cast<float>(value); }

  static Ints no_sum() { return 0; }
  static Ints plus(Ints x, Ints y) { return x + y; }
  static Ints load_bytes(const std::byte* from) { return spread(from); }
  static Ints low_halves(Ints both) { return both & 0x0f0f0f0f; }
  static Ints high_halves(Ints both) { return (both >> 4) & 0x0f0f0f0f; }
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
  static void round_to_bytes(std::int8_t* to, Floats x, Floats factor, Floats zero) {
    const float q = std::clamp(std::round(x * factor) + zero, -128.0F, 127.0F);
    *to = q == q ? static_cast<std::int8_t>(q) : std::int8_t{0};  // nobody sees the bytes of a row with NaNs
  }
};

}  // namespace

const FourBitKernels kFourBitScalar = {quantize_row<Scalar>, multiply_panel<Scalar>, finish_row<Scalar>};

}  // namespace tandem::gemm::cpu
