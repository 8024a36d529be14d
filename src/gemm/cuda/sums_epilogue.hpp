#pragma once

#include <cstdint>
#include <initializer_list>
#include <tandem/base/dtype.hpp>
#include <tandem/base/shape.hpp>
#include <tandem/base/tensor.hpp>

#include "gemm/row_tensor.hpp"

namespace tandem::gemm {
struct Product;
struct ProductArgs;
}  // namespace tandem::gemm

namespace tandem::gemm::cuda {

/// One number for each column, or for all of them (stride 0).
struct ColumnVector {
  const void* data = nullptr;  ///< null: left out
  std::int64_t stride = 0;
  DType dtype = DType::kF32;
};

/// What becomes of f32 sums: out = ((sum * a_scale) * b_scale + bias) * result_scale + addend, each step
/// rounded to f32, a NaN in the CPU's form, then rounded once to the type of out. What is left out is no
/// step.
struct SumsEpilogue {
  int num_row_dims = 0;
  std::int64_t row_sizes[kMaxDims - 1] = {};
  RowTensor a_scale;     ///< f32; col_stride 0
  ColumnVector b_scale;  ///< f32
  ColumnVector bias;
  const float* result_scale = nullptr;  ///< null: left out
  RowTensor addend;
  DType addend_dtype = DType::kF32;  ///< or that of out
  RowTensor out;
  DType out_dtype = DType::kF32;
};

/// With a's row dims, before merge_rows(). Scales along k are left out.
[[nodiscard]] SumsEpilogue sums_epilogue_of(const Product& product, const ProductArgs& args);

/// Every row, and column, the same.
[[nodiscard]] RowTensor one_number_of(const TensorView& view);

/// Merges the row dims as far as the epilogue's tensors and `others`, at most two, allow.
void merge_rows(SumsEpilogue& epilogue, std::initializer_list<RowTensor*> others);

}  // namespace tandem::gemm::cuda
