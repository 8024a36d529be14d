// The reference: no vector instructions, the C library's fma. Compiled for any x86-64 processor.

#include <bit>
#include <cmath>

#include "gemm/cpu/tile_loop.hpp"

namespace tandem::gemm::cpu {
namespace {

struct Scalar {
  using Vec = float;
  static constexpr int kWidth = 1;
  static constexpr int kTileVecs = 4;

  static Vec zero() { return 0.0F; }
  static Vec broadcast(float value) { return value; }
  static Vec fma(Vec x, Vec y, Vec sum) { return std::fma(x, y, sum); }
  static Vec add(Vec x, Vec y) { return x + y; }

  static Vec load(const float* from) { return *from; }
  static Vec load(const BF16* from) { return to_f32(*from); }
  static Vec load(const F16* from) { return to_f32(*from); }
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

}  // namespace

void run_tile_scalar(const TileProblem& problem, const Blocking& blocking, const Scratch& scratch) {
  run_tile<Scalar>(problem, blocking, scratch);
}

}  // namespace tandem::gemm::cpu
