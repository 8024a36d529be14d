#pragma once

#include <cstdint>

#include "gemm/row_tensor.hpp"

namespace tandem::gemm::cuda {

/// Where row `row` of a tensor begins whose row dims are those of `shape`: its num_row_dims and row_sizes.
/// Units: elements.
template <class Shape>
__device__ inline std::int64_t row_offset(const Shape& shape, const RowTensor& tensor, std::int64_t row) {
  std::int64_t offset = 0;
  for (int d = shape.num_row_dims - 1; d > 0; --d) {
    offset += row % shape.row_sizes[d] * tensor.row_strides[d];
    row /= shape.row_sizes[d];
  }
  return offset + row * tensor.row_strides[0];
}

}  // namespace tandem::gemm::cuda
