// Compiled for AVX-512 with BF16 and VNNI: nothing here may run before the processor was asked
// (core_peaks.cpp).

#include <immintrin.h>

#include <bit>

#include "device/cpu/probe_loop.hpp"

namespace tandem::cpu {
namespace {

/// Two a cycle with a latency of 6 need 12, and a few more to be found in time.
constexpr int kNumSums = 16;
constexpr int kBf16Ones = 0x3f803f80;
constexpr int kByteOnes = 0x01010101;

struct Floats512 {
  using Lane = float;
  using Sum = __m512;
  static constexpr int kSums = kNumSums;
  static constexpr int kLanes = 16;
  static Sum sum_of(float value) { return _mm512_set1_ps(value); }
};
struct Floats256 {
  using Lane = float;
  using Sum = __m256;
  static constexpr int kSums = kNumSums;
  static constexpr int kLanes = 8;
  static Sum sum_of(float value) { return _mm256_set1_ps(value); }
};
struct Ints512 {
  using Lane = int;
  using Sum = __m512i;
  static constexpr int kSums = kNumSums;
  static constexpr int kLanes = 16;
  static Sum sum_of(int value) { return _mm512_set1_epi32(value); }
};
struct Ints256 {
  using Lane = int;
  using Sum = __m256i;
  static constexpr int kSums = kNumSums;
  static constexpr int kLanes = 8;
  static Sum sum_of(int value) { return _mm256_set1_epi32(value); }
};

struct Fma : Floats512 {
  static constexpr int kProducts = 1;
  static __m512 ones(int zero) { return _mm512_set1_ps(1.0F + static_cast<float>(zero)); }
  static __m512 step(__m512 sum, __m512 x, __m512 y) { return _mm512_fmadd_ps(x, y, sum); }
};
struct DotBf16In512 : Floats512 {
  static constexpr int kProducts = 2;
  static __m512bh ones(int zero) { return std::bit_cast<__m512bh>(_mm512_set1_epi32(kBf16Ones + zero)); }
  static __m512 step(__m512 sum, __m512bh x, __m512bh y) { return _mm512_dpbf16_ps(sum, x, y); }
};
struct DotBf16In256 : Floats256 {
  static constexpr int kProducts = 2;
  static __m256bh ones(int zero) { return std::bit_cast<__m256bh>(_mm256_set1_epi32(kBf16Ones + zero)); }
  static __m256 step(__m256 sum, __m256bh x, __m256bh y) { return _mm256_dpbf16_ps(sum, x, y); }
};
// By assembler: gcc 12 copies registers around the intrinsics, which takes a twentieth of the narrower form.
struct DotU8s8In512 : Ints512 {
  static constexpr int kProducts = 4;
  static __m512i ones(int zero) { return _mm512_set1_epi32(kByteOnes + zero); }
  static __m512i step(__m512i sum, __m512i x, __m512i y) {
    asm("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(x), "v"(y));
    return sum;
  }
};
struct DotU8s8In256 : Ints256 {
  static constexpr int kProducts = 4;
  static __m256i ones(int zero) { return _mm256_set1_epi32(kByteOnes + zero); }
  static __m256i step(__m256i sum, __m256i x, __m256i y) {
    asm("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(x), "v"(y));
    return sum;
  }
};

struct Words512 {
  using Words = __m512i;
  static Words load(const std::byte* from) { return _mm512_load_si512(from); }
  static Words add(Words x, Words y) { return _mm512_add_epi64(x, y); }
};

}  // namespace

constinit const ProbeLoop kFma512 = kProbeLoop<Fma>;
constinit const ProbeLoop kDotBf16In512 = kProbeLoop<DotBf16In512>;
constinit const ProbeLoop kDotBf16In256 = kProbeLoop<DotBf16In256>;
constinit const ProbeLoop kDotU8s8In512 = kProbeLoop<DotU8s8In512>;
constinit const ProbeLoop kDotU8s8In256 = kProbeLoop<DotU8s8In256>;
constinit const WordSum kWordSum512 = word_sum<Words512>;

}  // namespace tandem::cpu
