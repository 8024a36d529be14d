#pragma once

#include <bit>
#include <cstdint>

namespace tandem {

// Floats of 16 and 8 bits as bit patterns. Arithmetic is done in f32. Narrowing rounds to nearest even. f8
// saturates to its largest finite value, and NaN stays NaN.

/// IEEE 754 binary16.
struct F16 {
  std::uint16_t bits;
};
/// The upper half of an f32.
struct BF16 {
  std::uint16_t bits;
};
/// OCP E4M3FN.
struct F8E4M3 {
  std::uint8_t bits;
};
/// OCP E5M2.
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

// The f16 pair selects instead of branching, so that loops over it vectorise; every float it computes with is
// a normal number, so that a thread that flushes subnormals gets the same bits.

[[nodiscard]] constexpr float to_f32(F16 value) {
  const std::uint32_t magnitude = static_cast<std::uint32_t>(value.bits & 0x7fffU) << 13;
  const std::uint32_t exponent = magnitude & 0x0f800000U;
  constexpr std::uint32_t kRebias = (127U - 15U) << 23;
  constexpr std::uint32_t kSmallestNormal = (127U - 14U) << 23;
  const std::uint32_t normal = magnitude + kRebias;
  const std::uint32_t special = normal + kRebias;
  // A subnormal's bits behind the leading one of 2^-14; taking 2^-14 away again leaves its value.
  const float subnormal =
      std::bit_cast<float>(kSmallestNormal + magnitude) - std::bit_cast<float>(kSmallestNormal);
  const std::uint32_t wide = exponent == 0             ? std::bit_cast<std::uint32_t>(subnormal)
                             : exponent == 0x0f800000U ? special
                                                       : normal;
  return std::bit_cast<float>(wide | (static_cast<std::uint32_t>(value.bits & 0x8000U) << 16));
}

[[nodiscard]] constexpr F16 to_f16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t magnitude = bits & 0x7fffffffU;
  constexpr std::uint32_t kInfinity = 0x7c00U;
  constexpr std::uint32_t kSmallestNormal = (127U - 14U) << 23;
  constexpr std::uint32_t kTooLarge = (127U + 16U)
                                      << 23;  // 65536; what rounds up to it below carries by itself
  // Added to 1/2 a subnormal's last bit is the sum's last bit: the adder rounds it to nearest even.
  constexpr std::uint32_t kHalf = 126U << 23;
  const std::uint32_t subnormal =
      std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + std::bit_cast<float>(kHalf)) - kHalf;
  const std::uint32_t normal = (magnitude - ((127U - 15U) << 23) + 0xfffU + ((magnitude >> 13) & 1U)) >> 13;
  const std::uint32_t nan = kInfinity | 0x200U | ((magnitude >> 13) & 0x3ffU);
  const std::uint32_t rounded = magnitude < kSmallestNormal ? subnormal
                                : magnitude > 0x7f800000U   ? nan
                                : magnitude >= kTooLarge    ? kInfinity
                                                            : normal;
  return {static_cast<std::uint16_t>(rounded | ((bits >> 16) & 0x8000U))};
}

[[nodiscard]] float to_f32(F8E4M3 value);
[[nodiscard]] F8E4M3 to_f8e4m3(float value);
[[nodiscard]] float to_f32(F8E5M2 value);
[[nodiscard]] F8E5M2 to_f8e5m2(float value);

}  // namespace tandem
