#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <tandem/base/error.hpp>
#include <tandem/base/tensor.hpp>

namespace tandem::symm {

/// Bytes of a contiguous tensor. Errors: kInvalidArgument, naming `who`, for a negative size, an unknown
/// dtype or more than 2^62 bytes (sizes are user input: the product may overflow).
[[nodiscard]] Result<std::int64_t> byte_size(const Dims& sizes, DType dtype, std::string_view who);

/// The bytes [first, last) that a view can touch, whatever the signs of its strides.
struct ByteRange {
  const std::byte* first = nullptr;
  const std::byte* last = nullptr;
};
[[nodiscard]] ByteRange byte_range(const TensorView& view);

}  // namespace tandem::symm
