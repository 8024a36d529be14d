#pragma once

#include <cstdint>
#include <string_view>
#include <tandem/base/dtype.hpp>
#include <tandem/base/error.hpp>
#include <tandem/base/shape.hpp>

namespace tandem {

/// More than any memory has, and so little that a sum of two can be counted.
inline constexpr std::int64_t kMostBytes = std::int64_t{1} << 62;

/// Bytes of a contiguous tensor: 0 if one of its sizes is 0. Errors: kInvalidArgument, naming `who`, for a
/// negative size, an unknown dtype or more than kMostBytes. Sizes are user input: their product may overflow.
[[nodiscard]] Result<std::int64_t> byte_size(const Dims& sizes, DType dtype, std::string_view who);

/// The sum, or kMostBytes if it is more; neither is negative.
[[nodiscard]] std::int64_t add_bytes(std::int64_t x, std::int64_t y);
/// The product, or kMostBytes if it is more; neither is negative.
[[nodiscard]] std::int64_t multiply_bytes(std::int64_t x, std::int64_t y);

}  // namespace tandem
