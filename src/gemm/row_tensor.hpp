#pragma once

#include <algorithm>
#include <cstdint>
#include <tandem/base/dtype.hpp>
#include <tandem/base/shape.hpp>
#include <tandem/base/tensor.hpp>

namespace tandem::gemm {

/// A tensor [rows..., columns] of a type known elsewhere. Units: strides in elements.
struct RowTensor {
  void* data = nullptr;  ///< null: left out
  std::int64_t row_strides[kMaxDims - 1] = {};
  std::int64_t col_stride = 0;
};

[[nodiscard]] inline RowTensor row_tensor_of(const TensorView& view) {
  RowTensor rows{.data = view.data, .col_stride = view.strides.back()};
  for (int d = 0; d < view.dim() - 1; ++d) rows.row_strides[d] = view.stride(d);
  return rows;
}

[[nodiscard]] inline bool is_aligned(const void* address, std::int64_t bytes) {
  return reinterpret_cast<std::uintptr_t>(address) % static_cast<std::uintptr_t>(bytes) == 0;
}

/// Whether rows of `tensor` are read or written by vectors of so many elements, of 16 bytes at most.
[[nodiscard]] inline bool has_vectors(const RowTensor& tensor, int num_row_dims, DType dtype,
                                      std::int64_t width) {
  bool has = tensor.col_stride == 1 &&
             is_aligned(tensor.data, std::min<std::int64_t>(width * size_bytes(dtype), 16));
  for (int d = 0; d < num_row_dims; ++d) has = has && tensor.row_strides[d] % width == 0;
  return has;
}

}  // namespace tandem::gemm
