#pragma once

#include <cstddef>
#include <cstdint>
#include <tandem/base/tensor.hpp>

namespace tandem {

/// convert() without its checks, for loops over parts of tensors that are checked: host memory, equal sizes,
/// no overlap.
void convert_elements(const TensorView& from, const TensorView& to);

/// Elements `offset`, offset + stride, ... of host memory of any type.
[[nodiscard]] inline TensorView row_view(const void* data, std::int64_t offset, std::int64_t count,
                                         std::int64_t stride, DType dtype) {
  const auto* at = static_cast<const std::byte*>(data) + offset * size_bytes(dtype);
  return {const_cast<std::byte*>(at), {count}, {stride}, dtype, {}};
}

}  // namespace tandem
