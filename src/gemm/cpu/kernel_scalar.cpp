// The reference: no vector instructions, the C library's fma. Compiled for any x86-64 processor.

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "gemm/cpu/tile_loop.hpp"

namespace tandem::gemm::cpu {
namespace {

constexpr float kSmallest = std::numeric_limits<float>::min();

float flushed(float value) {
  return std::fabs(value) < kSmallest ? std::copysign(0.0F, value) : value;
}

// A processor flushes a result whose 24 bits, of any exponent, are below the smallest normal number. fma has
// rounded some of those up to it.
float flushed_fma(float x, float y, float sum) {
  x = flushed(x);
  y = flushed(y);
  sum = flushed(sum);
  const float result = std::fma(x, y, sum);
  if (std::fabs(result) != kSmallest) return flushed(result);
  constexpr float kUp = 0x1p64F;  // x * y and sum are far from overflow here, as is the smaller factor
  const bool x_is_smaller = std::fabs(x) < std::fabs(y);
  const float scaled = std::fma(x_is_smaller ? x * kUp : x, x_is_smaller ? y : y * kUp, sum * kUp);
  return std::fabs(scaled) < kSmallest * kUp ? std::copysign(0.0F, result) : result;
}

struct Plain {
  using Vec = float;
  static constexpr int kWidth = 1;
  static constexpr int kTileVecs = 4;

  static Vec zero() { return 0.0F; }
  static Vec broadcast(const std::byte* from) {
    float value;
    std::memcpy(&value, from, sizeof value);
    return value;
  }
  static Vec fma(Vec x, Vec y, Vec sum) { return std::fma(x, y, sum); }
  static Vec add(Vec x, Vec y) { return x + y; }

  static Vec load(const float* from) { return *from; }
  template <class T>
  static Vec load(const T* from) {
    return to_f32(*from);
  }
  static void store(float* to, Vec value) { *to = value; }
  static void store(BF16* to, Vec value) { *to = to_bf16(value); }
  static void store(F16* to, Vec value) { *to = to_f16(value); }
  template <class T>
  static float load_one(const T* from) {
    return load(from);
  }
  template <class T>
  static void store_one(T* to, float value) {
    store(to, value);
  }

  static Vec canonical(Vec value) { return value == value ? value : std::bit_cast<float>(0x7fc00000U); }
  static Vec interleave_low(Vec x, Vec) { return x; }
  static Vec interleave_high(Vec, Vec y) { return y; }
};

struct ScalarPairs : Plain {
  static constexpr PanelForm kPairsForm = PanelForm::kTwoSteps;
  struct Flushing {};  // by each operation
  static Vec fma(Vec x, Vec y, Vec sum) { return flushed_fma(x, y, sum); }
  static Vec add(Vec x, Vec y) { return flushed(flushed(x) + flushed(y)); }
};

struct Scalar : Plain {
  using PairIsa = ScalarPairs;
};

}  // namespace

const TileKernels kTileScalar = {ScalarPairs::kPairsForm, pack_by<Scalar>, multiply_by<Scalar>};

}  // namespace tandem::gemm::cpu
