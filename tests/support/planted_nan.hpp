#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <tandem/base/dtype.hpp>
#include <vector>

namespace tandem::testing {

inline constexpr DType kFloatingTypes[] = {DType::kF32,    DType::kF16,    DType::kBF16,
                                           DType::kF8E4M3, DType::kF8E5M2, DType::kF64};

/// Bits of NaN: quiet, with the smallest payload, with all bits, and negative.
inline std::vector<std::uint64_t> nan_bits(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return {0x7ff8'0000'0000'0000U, 0x7ff0'0000'0000'0001U, 0x7fff'ffff'ffff'ffffU, 0xfff0'0000'0000'0001U};
    case DType::kF32:
      return {0x7fc0'0000U, 0x7f80'0001U, 0x7fff'ffffU, 0xffc0'0000U};
    case DType::kF16:
      return {0x7e00U, 0x7c01U, 0x7fffU, 0xfc01U};
    case DType::kBF16:
      return {0x7fc0U, 0x7f81U, 0x7fffU, 0xff81U};
    case DType::kF8E4M3:
      return {0x7fU, 0xffU};
    default:
      return {0x7eU, 0x7dU, 0x7fU, 0xfdU};
  }
}

/// Bits that are no NaN, however they look: infinities, the largest numbers, subnormals and zeros.
inline std::vector<std::uint64_t> clean_bits(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return {0x7ff0'0000'0000'0000U, 0xfff0'0000'0000'0000U, 0x7fef'ffff'ffff'ffffU, 1U,
              0x8000'0000'0000'0000U, 0x000f'ffff'ffff'ffffU};
    case DType::kF32:
      return {0x7f80'0000U, 0xff80'0000U, 0x7f7f'ffffU, 1U, 0x8000'0000U, 0x007f'ffffU};
    case DType::kF16:
      return {0x7c00U, 0xfc00U, 0x7bffU, 1U, 0x8000U, 0x03ffU};
    case DType::kBF16:
      return {0x7f80U, 0xff80U, 0x7f7fU, 1U, 0x8000U, 0x007fU};
    case DType::kF8E4M3:
      return {0x7eU, 0xfeU, 0x01U, 0x80U, 0x07U};
    default:
      return {0x7cU, 0xfcU, 0x7bU, 1U, 0x80U, 0x03U};
  }
}

/// Elements in host memory, by their bits.
class Elements {
 public:
  /// Filled with what is no NaN, in turns.
  Elements(DType dtype, std::int64_t count)
      : dtype_(dtype), bytes_(static_cast<std::size_t>(count * size_bytes(dtype))) {
    const std::vector<std::uint64_t> clean = clean_bits(dtype);
    for (std::int64_t i = 0; i < count; ++i) set(i, clean[static_cast<std::size_t>(i) % clean.size()]);
  }
  void set(std::int64_t idx, std::uint64_t bits) {
    std::memcpy(bytes_.data() + idx * size_bytes(dtype_), &bits,
                static_cast<std::size_t>(size_bytes(dtype_)));
  }
  [[nodiscard]] const std::byte* data() const { return bytes_.data(); }
  [[nodiscard]] std::byte* data() { return bytes_.data(); }

 private:
  DType dtype_;
  std::vector<std::byte> bytes_;
};

}  // namespace tandem::testing
