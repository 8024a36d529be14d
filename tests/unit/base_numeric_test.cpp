#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <tandem/base/numeric.hpp>
#include <vector>

namespace tandem {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::uint32_t bits_of(float value) {
  return std::bit_cast<std::uint32_t>(value);
}

// The value of a pattern, computed from the definition of the format in f64; NaN where the pattern is one.
double defined_value(unsigned bits, int exponent_bits, int mantissa_bits, bool has_infinity) {
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int top = (1 << exponent_bits) - 1;
  const int mantissa_max = (1 << mantissa_bits) - 1;
  const int exponent = static_cast<int>(bits >> mantissa_bits) & top;
  const int mantissa = static_cast<int>(bits) & mantissa_max;
  const double sign = (bits >> (exponent_bits + mantissa_bits)) != 0 ? -1.0 : 1.0;
  if (exponent == top && has_infinity) {
    return mantissa == 0 ? sign * std::numeric_limits<double>::infinity() : std::nan("");
  }
  if (exponent == top && mantissa == mantissa_max) return std::nan("");
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias - mantissa_bits);
  return sign * std::ldexp(1.0 + std::ldexp(mantissa, -mantissa_bits), exponent - bias);
}

// Every pattern widens to its defined value and narrows back to itself; NaN stays NaN with its sign.
template <class T>
void expect_every_pattern_round_trips(int exponent_bits, int mantissa_bits, bool has_infinity,
                                      T (*narrow)(float)) {
  const unsigned count = 1U << (1 + exponent_bits + mantissa_bits);
  for (unsigned bits = 0; bits < count; ++bits) {
    const float wide = to_f32(T{static_cast<decltype(T::bits)>(bits)});
    const double want = defined_value(bits, exponent_bits, mantissa_bits, has_infinity);
    const unsigned back = narrow(wide).bits;
    if (std::isnan(want)) {
      ASSERT_TRUE(std::isnan(wide)) << "pattern " << bits << " widens to " << wide;
      ASSERT_TRUE(std::isnan(to_f32(narrow(wide)))) << "pattern " << bits << " comes back as " << back;
      ASSERT_EQ(back >> (exponent_bits + mantissa_bits), bits >> (exponent_bits + mantissa_bits));
      continue;
    }
    ASSERT_EQ(static_cast<double>(wide), want) << "pattern " << bits;
    ASSERT_EQ(std::signbit(wide), std::signbit(want)) << "pattern " << bits;
    if (!std::isinf(want) || sizeof(T) > 1) {
      ASSERT_EQ(back, bits) << "value " << wide;  // an 8-bit infinity saturates
    }
  }
}

TEST(Numeric, EveryPatternRoundTrips) {
  expect_every_pattern_round_trips<F16>(5, 10, true, [](float v) { return to_f16(v); });
  expect_every_pattern_round_trips<BF16>(8, 7, true, [](float v) { return to_bf16(v); });
  expect_every_pattern_round_trips<F8E4M3>(4, 3, false, to_f8e4m3);
  expect_every_pattern_round_trips<F8E5M2>(5, 2, true, to_f8e5m2);
}

// Around every pair of neighbours: a shade below the middle goes down, the middle to the even one, a shade
// above up.
template <class T>
void expect_rounds_to_nearest_even(unsigned largest_finite, T (*narrow)(float)) {
  for (unsigned bits = 0; bits < largest_finite; ++bits) {
    const double low = static_cast<double>(to_f32(T{static_cast<decltype(T::bits)>(bits)}));
    const double high = static_cast<double>(to_f32(T{static_cast<decltype(T::bits)>(bits + 1)}));
    const auto middle = static_cast<float>((low + high) / 2);
    ASSERT_EQ(static_cast<double>(middle), (low + high) / 2);
    const unsigned even = bits % 2 == 0 ? bits : bits + 1;
    const unsigned sign = 1U << (8 * sizeof(T) - 1);
    ASSERT_EQ(narrow(std::nextafter(middle, -kInfinity)).bits, bits) << "below the middle " << middle;
    ASSERT_EQ(narrow(middle).bits, even) << "the middle " << middle;
    ASSERT_EQ(narrow(std::nextafter(middle, kInfinity)).bits, bits + 1) << "above the middle " << middle;
    ASSERT_EQ(narrow(-middle).bits, even | sign) << "the middle " << -middle;
    ASSERT_EQ(narrow(-std::nextafter(middle, kInfinity)).bits, (bits + 1) | sign);
  }
}

TEST(Numeric, TiesRoundToEven) {
  expect_rounds_to_nearest_even<F16>(0x7bff, [](float v) { return to_f16(v); });
  expect_rounds_to_nearest_even<F8E4M3>(0x7e, to_f8e4m3);
  expect_rounds_to_nearest_even<F8E5M2>(0x7b, to_f8e5m2);
  expect_rounds_to_nearest_even<BF16>(0x7f7f, [](float v) { return to_bf16(v); });
}

// Floats of every exponent with random mantissas, and the neighbourhoods of the special ones.
std::vector<float> sample_floats() {
  std::mt19937 random(7);  // NOLINT: the same floats in every run
  std::vector<float> floats;
  for (std::uint32_t exponent = 0; exponent < 256; ++exponent) {
    for (int i = 0; i < 512; ++i) {
      const auto bits = static_cast<std::uint32_t>(random());
      floats.push_back(std::bit_cast<float>((bits & 0x807fffffU) | (exponent << 23)));
    }
    for (const std::uint32_t mantissa :
         {0U, 1U, 0x1000U, 0x0fffU, 0x1001U, 0x3000U, 0x7fffffU, 0x7fefffU, 0x7ff000U}) {
      floats.push_back(std::bit_cast<float>(mantissa | (exponent << 23)));
    }
  }
  return floats;
}

#ifdef __FLT16_MANT_DIG__
TEST(Numeric, F16AgreesWithTheCompiler) {
  for (unsigned bits = 0; bits < 65536; ++bits) {
    const auto want = static_cast<float>(std::bit_cast<_Float16>(static_cast<std::uint16_t>(bits)));
    const float got = to_f32(F16{static_cast<std::uint16_t>(bits)});
    if (std::isnan(want)) {
      ASSERT_TRUE(std::isnan(got)) << bits;
    } else {
      ASSERT_EQ(bits_of(got), bits_of(want)) << "pattern " << bits;
    }
  }
  for (const float value : sample_floats()) {
    const auto want = std::bit_cast<std::uint16_t>(static_cast<_Float16>(value));
    ASSERT_EQ(to_f16(value).bits, want) << "value " << value << " bits " << bits_of(value);
  }
}
#endif

TEST(Numeric, BF16RoundsTheUpperHalf) {
  for (const float value : sample_floats()) {
    const float got = to_f32(to_bf16(value));
    if (std::isnan(value)) {
      ASSERT_TRUE(std::isnan(got)) << bits_of(value);
      continue;
    }
    const std::uint32_t down = bits_of(value) & 0xffff0000U;
    const std::uint32_t rest = bits_of(value) & 0xffffU;
    const bool goes_up = rest > 0x8000U || (rest == 0x8000U && (down & 0x10000U) != 0);
    ASSERT_EQ(bits_of(got), down + (goes_up ? 0x10000U : 0U)) << "value " << value;
  }
}

TEST(Numeric, LargeValues) {
  EXPECT_EQ(to_f16(65504.0F).bits, 0x7bff);
  EXPECT_EQ(to_f16(65519.996F).bits, 0x7bff);
  EXPECT_EQ(to_f16(65520.0F).bits, 0x7c00);  // half way to 65536, and its even neighbour is infinity
  EXPECT_EQ(to_f16(-1e30F).bits, 0xfc00);
  EXPECT_EQ(to_bf16(std::numeric_limits<float>::max()).bits, 0x7f80);
  EXPECT_EQ(to_bf16(-kInfinity).bits, 0xff80);
  for (const float value : {449.0F, 464.0F, 480.0F, 1e30F, kInfinity}) {
    EXPECT_EQ(to_f8e4m3(value).bits, 0x7e) << value;
    EXPECT_EQ(to_f8e4m3(-value).bits, 0xfe) << value;
  }
  for (const float value : {57345.0F, 61440.0F, 65536.0F, 1e30F, kInfinity}) {
    EXPECT_EQ(to_f8e5m2(value).bits, 0x7b) << value;
    EXPECT_EQ(to_f8e5m2(-value).bits, 0xfb) << value;
  }
}

TEST(Numeric, TinyValuesKeepTheirSign) {
  for (const float value : {0.0F, std::numeric_limits<float>::denorm_min(), 1e-30F}) {
    EXPECT_EQ(to_f16(value).bits, 0);
    EXPECT_EQ(to_f16(-value).bits, 0x8000);
    EXPECT_EQ(to_f8e4m3(value).bits, 0);
    EXPECT_EQ(to_f8e4m3(-value).bits, 0x80);
    EXPECT_EQ(to_f8e5m2(value).bits, 0);
    EXPECT_EQ(to_f8e5m2(-value).bits, 0x80);
  }
}

TEST(Numeric, NanStaysNan) {
  // The last one has its payload in the bits that narrowing drops.
  for (const std::uint32_t pattern : {bits_of(kNan), 0x7f800001U, 0xffc00000U, 0xff800001U, 0x7fffffffU}) {
    const auto nan = std::bit_cast<float>(pattern);
    EXPECT_TRUE(std::isnan(to_f32(to_f16(nan)))) << pattern;
    EXPECT_TRUE(std::isnan(to_f32(to_bf16(nan)))) << pattern;
    EXPECT_TRUE(std::isnan(to_f32(to_f8e4m3(nan)))) << pattern;
    EXPECT_TRUE(std::isnan(to_f32(to_f8e5m2(nan)))) << pattern;
  }
}

}  // namespace
}  // namespace tandem
