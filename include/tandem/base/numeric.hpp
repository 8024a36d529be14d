#pragma once

#include <bit>
#include <cstdint>

namespace tandem {

/// 16-bit and 8-bit floats as bit patterns; arithmetic is done in f32. Narrowing rounds to nearest even;
/// f8 saturates to its largest finite value, NaN stays NaN.
struct F16 {
  std::uint16_t bits;
};
struct BF16 {
  std::uint16_t bits;
};
struct F8E4M3 {
  std::uint8_t bits;
};
struct F8E5M2 {
  std::uint8_t bits;
};

[[nodiscard]] constexpr float to_f32(BF16 value) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(value.bits) << 16);
}

[[nodiscard]] constexpr BF16 to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffU) > 0x7f800000U) return {static_cast<std::uint16_t>((bits >> 16) | 0x40U)};
  return {static_cast<std::uint16_t>((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16)};
}

[[nodiscard]] float to_f32(F16 value);
[[nodiscard]] F16 to_f16(float value);
[[nodiscard]] float to_f32(F8E4M3 value);
[[nodiscard]] F8E4M3 to_f8e4m3(float value);
[[nodiscard]] float to_f32(F8E5M2 value);
[[nodiscard]] F8E5M2 to_f8e5m2(float value);

}  // namespace tandem
