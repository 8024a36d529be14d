#include <algorithm>
#include <cmath>
#include <tandem/base/numeric.hpp>

namespace tandem {
namespace {

// An 8-bit float: exponent and mantissa bits, whether the top exponent holds infinities (IEEE) or, as in
// E4M3FN, ordinary values and a single NaN pattern.
struct Format {
  int exponent_bits;
  int mantissa_bits;
  bool has_infinity;
  [[nodiscard]] constexpr int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  [[nodiscard]] constexpr std::uint32_t exponent_max() const { return (1U << exponent_bits) - 1; }
  [[nodiscard]] constexpr std::uint32_t mantissa_max() const { return (1U << mantissa_bits) - 1; }
  /// The pattern of the top exponent with an empty mantissa.
  [[nodiscard]] constexpr std::uint32_t top() const { return exponent_max() << mantissa_bits; }
  /// The pattern of the largest finite value.
  [[nodiscard]] constexpr std::uint32_t largest() const {
    return has_infinity ? top() - 1 : (top() | mantissa_max()) - 1;
  }
};
constexpr Format kE4M3 = {4, 3, false};
constexpr Format kE5M2 = {5, 2, true};

float widen(std::uint32_t bits, const Format& format) {
  const std::uint32_t sign = bits >> (format.exponent_bits + format.mantissa_bits);
  const std::uint32_t exponent = (bits >> format.mantissa_bits) & format.exponent_max();
  const std::uint32_t mantissa = bits & format.mantissa_max();
  const bool is_top = exponent == format.exponent_max();
  float magnitude = 0.0F;
  if (is_top && format.has_infinity) {
    // Keep NaN payloads: they travel through narrow() and back unchanged.
    magnitude = std::bit_cast<float>(0x7f800000U | (mantissa << (23 - format.mantissa_bits)));
  } else if (is_top && mantissa == format.mantissa_max()) {
    magnitude = std::bit_cast<float>(0x7fc00000U);
  } else if (exponent == 0) {
    magnitude = std::ldexp(static_cast<float>(mantissa), 1 - format.bias() - format.mantissa_bits);
  } else {
    magnitude = std::ldexp(static_cast<float>(mantissa | (1U << format.mantissa_bits)),
                           static_cast<int>(exponent) - format.bias() - format.mantissa_bits);
  }
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(magnitude) | (sign << 31));
}

std::uint32_t narrow(float value, const Format& format) {
  const auto wide = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (wide >> 31) << (format.exponent_bits + format.mantissa_bits);
  const std::uint32_t magnitude = wide & 0x7fffffffU;
  if (magnitude > 0x7f800000U) {  // NaN: keep the top of the payload, stay quiet
    if (!format.has_infinity) return sign | format.top() | format.mantissa_max();
    const std::uint32_t payload = (magnitude & 0x7fffffU) >> (23 - format.mantissa_bits);
    return sign | format.top() | payload | (1U << (format.mantissa_bits - 1));
  }
  const int exponent = static_cast<int>(magnitude >> 23) - 127 + format.bias();
  if (exponent > static_cast<int>(format.exponent_max())) return sign | format.largest();
  // Shift the 24-bit significand to the target's precision, one bit more for each step below normal.
  std::uint32_t significand = magnitude & 0x7fffffU;
  std::uint32_t base = 0;
  int shift = 23 - format.mantissa_bits;
  if (exponent > 0) {
    base = static_cast<std::uint32_t>(exponent) << format.mantissa_bits;
  } else {
    if (magnitude >= 0x00800000U) significand |= 0x800000U;
    shift = std::min(shift + 1 - exponent, 25);
  }
  const std::uint32_t half = 1U << (shift - 1);
  const std::uint32_t kept = significand >> shift;
  const std::uint32_t rest = significand & ((1U << shift) - 1);
  const std::uint32_t rounded = base + kept + ((rest > half || (rest == half && (kept & 1U) != 0)) ? 1U : 0U);
  return sign | std::min(rounded, format.largest());
}

}  // namespace

float to_f32(F8E4M3 value) {
  return widen(value.bits, kE4M3);
}
F8E4M3 to_f8e4m3(float value) {
  return {static_cast<std::uint8_t>(narrow(value, kE4M3))};
}
float to_f32(F8E5M2 value) {
  return widen(value.bits, kE5M2);
}
F8E5M2 to_f8e5m2(float value) {
  return {static_cast<std::uint8_t>(narrow(value, kE5M2))};
}

}  // namespace tandem
