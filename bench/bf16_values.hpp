#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <span>
#include <vector>

namespace tandem::bench {

/// The bits of bf16 numbers of a normal distribution: a few million random ones, repeated. What matters is
/// that the bits toggle.
inline std::vector<std::uint16_t> random_bf16(std::int64_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<std::uint16_t> values(static_cast<std::size_t>(count));
  const std::size_t period = std::min<std::size_t>(values.size(), 3'000'017);
  for (std::size_t i = 0; i < period; ++i) {
    const float value = normal(random);
    std::uint32_t bits = 0;
    std::memcpy(&bits, &value, sizeof(bits));
    values[i] = static_cast<std::uint16_t>((bits + 0x8000U) >> 16U);
  }
  for (std::size_t i = period; i < values.size(); ++i) values[i] = values[i - period];
  return values;
}

inline double bf16_value(std::uint16_t bits) {
  const std::uint32_t wide = std::uint32_t{bits} << 16U;
  float value = 0;
  std::memcpy(&value, &wide, sizeof(value));
  return static_cast<double>(value);
}

/// How many sums of `k` products are farther off the reference than `tolerance` of what they may be; with 0,
/// not its bits.
inline std::int64_t count_wrong(std::span<const std::uint16_t> got, std::span<const std::uint16_t> reference,
                                std::int64_t k, double tolerance,
                                double (*value_of)(std::uint16_t) = bf16_value) {
  const double scale = std::sqrt(static_cast<double>(k));
  std::int64_t wrong = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (got[i] == reference[i]) continue;
    const double off = std::abs(value_of(got[i]) - value_of(reference[i]));
    if (!(off <= tolerance * (scale + std::abs(value_of(got[i]))))) ++wrong;
  }
  return wrong;
}

}  // namespace tandem::bench
