#pragma once

#include <cstddef>
#include <tandem/base/tensor.hpp>

namespace tandem::symm {

/// The bytes [first, last) that a view can touch, whatever the signs of its strides: all addresses, if it
/// reaches over more than that.
struct ByteRange {
  const std::byte* first = nullptr;
  const std::byte* last = nullptr;
};
[[nodiscard]] ByteRange byte_range(const TensorView& view);

}  // namespace tandem::symm
