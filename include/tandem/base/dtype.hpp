#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace tandem {

/// Element types. f8e4m3 is OCP E4M3FN, which has NaN and no infinity. f8e5m2 is OCP E5M2.
enum class DType : std::uint8_t {
  kF32,
  kF16,
  kBF16,
  kF8E4M3,
  kF8E5M2,
  kU8,
  kU32,
  kI8,
  kI32,
  kI64,
  kF64,
  kBool
};

inline constexpr int kNumDTypes = 12;

/// Bytes of one element.
[[nodiscard]] constexpr std::int64_t size_bytes(DType dtype) {
  switch (dtype) {
    case DType::kF64:
    case DType::kI64:
      return 8;
    case DType::kF32:
    case DType::kU32:
    case DType::kI32:
      return 4;
    case DType::kF16:
    case DType::kBF16:
      return 2;
    case DType::kF8E4M3:
    case DType::kF8E5M2:
    case DType::kU8:
    case DType::kI8:
    case DType::kBool:
      return 1;
  }
  return 0;
}

/// Whether values of this type are floating point.
[[nodiscard]] constexpr bool is_floating(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16 || dtype == DType::kF64 ||
         dtype == DType::kF8E4M3 || dtype == DType::kF8E5M2;
}

/// Whether this is one of the 8-bit floats.
[[nodiscard]] constexpr bool is_f8(DType dtype) {
  return dtype == DType::kF8E4M3 || dtype == DType::kF8E5M2;
}

/// "f32", "f16", "bf16", "f8e4m3", "f8e5m2", "u8", "u32", "i8", "i32", "i64", "f64", "bool".
[[nodiscard]] std::string_view to_string(DType dtype);

/// The inverse of to_string(); nothing for an unknown name.
[[nodiscard]] std::optional<DType> parse_dtype(std::string_view name);

}  // namespace tandem
