#include <algorithm>
#include <array>
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

/// The bits of the f32 of this value; NaN payloads are kept: they travel through narrow() and back unchanged.
constexpr std::uint32_t widened_bits(std::uint32_t bits, const Format& format) {
  const std::uint32_t sign = bits >> (format.exponent_bits + format.mantissa_bits) << 31;
  const std::uint32_t exponent = (bits >> format.mantissa_bits) & format.exponent_max();
  const std::uint32_t mantissa = bits & format.mantissa_max();
  const std::uint32_t fraction = mantissa << (23 - format.mantissa_bits);
  const auto rebias = static_cast<std::uint32_t>(127 - format.bias());
  if (exponent == format.exponent_max()) {
    if (format.has_infinity) return sign | 0x7f800000U | fraction;
    if (mantissa == format.mantissa_max()) return sign | 0x7fc00000U;
  }
  if (exponent != 0) return sign | ((exponent + rebias) << 23) | fraction;
  // Subnormal: units of the last place of the smallest normal exponent.
  const auto unit =
      std::bit_cast<float>((1 + rebias - static_cast<std::uint32_t>(format.mantissa_bits)) << 23);
  return sign | std::bit_cast<std::uint32_t>(static_cast<float>(mantissa) * unit);
}

using WidenTable = std::array<std::uint32_t, 256>;
constexpr WidenTable widen_table(const Format& format) {
  WidenTable table{};
  for (std::uint32_t bits = 0; bits < table.size(); ++bits) table[bits] = widened_bits(bits, format);
  return table;
}
constexpr WidenTable kWideE4M3 = widen_table(kE4M3);
constexpr WidenTable kWideE5M2 = widen_table(kE5M2);

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
  return std::bit_cast<float>(kWideE4M3[value.bits]);
}
F8E4M3 to_f8e4m3(float value) {
  return {static_cast<std::uint8_t>(narrow(value, kE4M3))};
}
float to_f32(F8E5M2 value) {
  return std::bit_cast<float>(kWideE5M2[value.bits]);
}
F8E5M2 to_f8e5m2(float value) {
  return {static_cast<std::uint8_t>(narrow(value, kE5M2))};
}

}  // namespace tandem
