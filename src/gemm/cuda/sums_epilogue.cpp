#include "gemm/cuda/sums_epilogue.hpp"

#include <array>
#include <span>

#include "gemm/product.hpp"
#include "gemm/row_dims.hpp"

namespace tandem::gemm::cuda {
namespace {

ColumnVector columns_of(const TensorView& view) {
  return {.data = view.data, .stride = view.numel() == 1 ? 0 : view.strides.back(), .dtype = view.dtype};
}

}  // namespace

RowTensor one_number_of(const TensorView& view) {
  return {.data = view.data};
}

SumsEpilogue sums_epilogue_of(const Product& product, const ProductArgs& args) {
  SumsEpilogue epilogue;
  epilogue.num_row_dims = args.a->dim() - 1;
  for (int d = 0; d < epilogue.num_row_dims; ++d) epilogue.row_sizes[d] = args.a->size(d);
  if (!product.is_scaled_along_k()) {
    if (product.a_scale == Scale::kTensor) epilogue.a_scale = one_number_of(*args.a_scale);
    if (product.a_scale == Scale::kRow) epilogue.a_scale = row_tensor_of(*args.a_scale);
    if (product.b_scale != Scale::kNone) epilogue.b_scale = columns_of(*args.b_scale);
  }
  if (args.bias != nullptr) epilogue.bias = columns_of(*args.bias);
  if (args.result_scale != nullptr)
    epilogue.result_scale = static_cast<const float*>(args.result_scale->data);
  if (args.addend != nullptr) {
    epilogue.addend = row_tensor_of(*args.addend);
    epilogue.addend_dtype = args.addend->dtype;
  }
  epilogue.out = row_tensor_of(*args.out);
  epilogue.out_dtype = args.out->dtype;
  return epilogue;
}

void merge_rows(SumsEpilogue& epilogue, std::initializer_list<RowTensor*> others) {
  // Those that are left out have strides of 0, which are in no other's way.
  std::array<std::int64_t*, 5> strides = {epilogue.a_scale.row_strides, epilogue.addend.row_strides,
                                          epilogue.out.row_strides};
  std::size_t count = 3;
  for (RowTensor* const other : others) strides[count++] = other->row_strides;
  epilogue.num_row_dims =
      merge_row_dims(epilogue.row_sizes, epilogue.num_row_dims, std::span(strides).first(count));
}

}  // namespace tandem::gemm::cuda
