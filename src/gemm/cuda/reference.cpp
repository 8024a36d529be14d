#include "gemm/cuda/reference.hpp"

#include "base/try.hpp"
#include "device/cuda/cuda_stream.hpp"
#include "gemm/cuda/reference_kernel.hpp"
#include "gemm/cuda/scaled_reference_kernel.hpp"

namespace tandem::gemm::cuda {
namespace {

StridedMatrix matrix_of(const TensorView& view) {
  return {.data = view.data, .row_stride = view.stride(0), .col_stride = view.stride(1)};
}

ReferenceProduct reference_product_of(const Product& product, const ProductArgs& args) {
  ReferenceProduct plain{.m = product.m,
                         .n = product.n,
                         .k = product.k,
                         .a = matrix_of(*args.a),
                         .b = matrix_of(*args.b),
                         .out = matrix_of(*args.out),
                         .bias = nullptr,
                         .bias_stride = 0,
                         .addend = {},
                         .in_dtype = product.a,
                         .out_dtype = product.out,
                         .accumulate = args.accumulate};
  if (args.bias != nullptr) {
    plain.bias = args.bias->data;
    plain.bias_stride = args.bias->stride(0);
  }
  if (args.addend != nullptr) plain.addend = matrix_of(*args.addend);
  return plain;
}

}  // namespace

Result<void> Reference::run(const Product& product, const ProductArgs& args, Stream& stream) const {
  TANDEM_ASSIGN(auto* const on, tandem::cuda::cuda_stream(stream, "mm"));
  return on->enqueue("mm", tandem::cuda::Waits::kForNobody, [&](cudaStream_t native) {
    return product.is_plain() ? launch_reference(reference_product_of(product, args), native)
                              : launch_scaled_reference(scaled_reference_product_of(product, args), native);
  });
}

}  // namespace tandem::gemm::cuda
