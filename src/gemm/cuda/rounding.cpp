#include "gemm/cuda/rounding.hpp"

namespace tandem::gemm::cuda {
namespace {

bool is_aligned(const void* address) {
  return reinterpret_cast<std::uintptr_t>(address) % 16 == 0;
}

bool fits_vectors(const Rounding& rounding) {
  const std::int64_t width = round_vector_elements(rounding.out_dtype);
  for (const std::int64_t count : {rounding.n, rounding.product_stride, rounding.out.row_stride}) {
    if (count % width != 0) return false;
  }
  return rounding.out.col_stride == 1 && is_aligned(rounding.product) && is_aligned(rounding.out.data);
}

}  // namespace

Rounding rounding_of(const Operand& out, const TensorView& bias) {
  const TensorView& to = out.caller;
  Rounding rounding{
      .m = to.size(0),
      .n = to.size(1),
      .product = static_cast<const float*>(out.taken.data),
      .product_stride = out.leading,
      .out = {.data = to.data, .row_stride = to.stride(0), .col_stride = to.stride(1)},
      .out_dtype = to.dtype,
      .bias = bias.data,
      .bias_stride = bias.stride(0),
  };
  rounding.by_vectors = fits_vectors(rounding);
  return rounding;
}

}  // namespace tandem::gemm::cuda
