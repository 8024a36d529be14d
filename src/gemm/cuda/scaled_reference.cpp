#include "gemm/cuda/scaled_reference_kernel.hpp"
#include "gemm/product.hpp"

namespace tandem::gemm::cuda {
namespace {

RowTensor scale_of_a(const Product& product, const TensorView& scale) {
  if (product.a_scale == Scale::kTensor) return one_number_of(scale);
  RowTensor rows = row_tensor_of(scale);
  if (product.a_scale == Scale::kRow) rows.col_stride = 0;
  return rows;
}

BlockScale scale_of_b(const Product& product, const TensorView& scale) {
  const auto* const data = static_cast<const float*>(scale.data);
  if (product.b_scale == Scale::kTensor) return {.data = data};
  return {.data = data,
          .block_stride = product.b_scale == Scale::kColumn ? 0 : scale.stride(0),
          .col_stride = scale.stride(1),
          .columns_each = product.b_scale == Scale::kBlock128 ? kScaleBlock : 1};
}

}  // namespace

ScaledReferenceProduct scaled_reference_product_of(const Product& product, const ProductArgs& args) {
  ScaledReferenceProduct scaled{
      .m = product.m,
      .n = product.n,
      .k = product.k,
      .a = row_tensor_of(*args.a),
      .b = {.data = args.b->data, .row_stride = args.b->stride(0), .col_stride = args.b->stride(1)},
      .a_dtype = product.a,
      .b_dtype = product.b,
      .is_scaled_along_k = product.is_scaled_along_k(),
      .a_scale = {},
      .b_scale = {},
      .epilogue = sums_epilogue_of(product, args)};
  if (scaled.is_scaled_along_k) {
    if (args.a_scale != nullptr) scaled.a_scale = scale_of_a(product, *args.a_scale);
    if (args.b_scale != nullptr) scaled.b_scale = scale_of_b(product, *args.b_scale);
  }
  merge_rows(scaled.epilogue, {&scaled.a, &scaled.a_scale});
  return scaled;
}

}  // namespace tandem::gemm::cuda
