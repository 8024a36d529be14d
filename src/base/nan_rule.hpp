#pragma once

#include <cstdint>
#include <tandem/base/dtype.hpp>

namespace tandem {

/// Which bits are NaN, for all elements of eight bytes at once. Plain code for hosts and GPUs: the only place
/// that knows.
///
/// Without its sign, an element is NaN where it is larger than the largest that is not: infinity, or of
/// f8e4m3, which has none, the largest finite one. Adding what that lacks to all ones carries into the place
/// of the sign then, and never beyond.
struct NanRule {
  std::uint64_t magnitude = 0;  ///< all bits but the signs
  std::uint64_t addend = 0;
  std::uint64_t sign = 0;

  /// The sign's bit of each element that is NaN.
  [[nodiscard]] constexpr std::uint64_t nans_in(std::uint64_t word) const {
    return ((word & magnitude) + addend) & sign;
  }
};

/// Of a floating type.
[[nodiscard]] constexpr NanRule nan_rule(DType dtype) {
  const std::int64_t num_bits = 8 * size_bytes(dtype);
  std::uint64_t largest = 0;
  switch (dtype) {
    case DType::kF64:
      largest = 0x7ff0'0000'0000'0000U;
      break;
    case DType::kF32:
      largest = 0x7f80'0000U;
      break;
    case DType::kF16:
      largest = 0x7c00U;
      break;
    case DType::kBF16:
      largest = 0x7f80U;
      break;
    case DType::kF8E5M2:
      largest = 0x7cU;
      break;
    case DType::kF8E4M3:
      largest = 0x7eU;
      break;
    default:
      return {};
  }
  NanRule rule;
  const std::uint64_t sign = std::uint64_t{1} << (num_bits - 1);
  for (std::int64_t at = 0; at < 64; at += num_bits) {
    rule.magnitude |= (sign - 1) << at;
    rule.addend |= (sign - 1 - largest) << at;
    rule.sign |= sign << at;
  }
  return rule;
}

}  // namespace tandem
