#include "gemm/cuda/reference.hpp"

#include "base/try.hpp"
#include "device/cuda/cuda_stream.hpp"
#include "gemm/cuda/reference_kernel.hpp"

namespace tandem::gemm::cuda {
namespace {

StridedMatrix matrix_of(const TensorView& view) {
  return {.data = view.data, .row_stride = view.stride(0), .col_stride = view.stride(1)};
}

}  // namespace

Result<void> Reference::run(const Problem& problem, const MmArgs& args, Stream& stream) const {
  TANDEM_ASSIGN(auto* const on, tandem::cuda::cuda_stream(stream, "mm"));
  ReferenceProduct product{.m = problem.m,
                           .n = problem.n,
                           .k = problem.k,
                           .a = matrix_of(args.a),
                           .b = matrix_of(args.b),
                           .out = matrix_of(args.out),
                           .bias = nullptr,
                           .bias_stride = 0,
                           .in_dtype = problem.in,
                           .out_dtype = problem.out,
                           .accumulate = problem.accumulate};
  if (args.bias) {
    product.bias = args.bias->data;
    product.bias_stride = args.bias->stride(0);
  }
  return on->enqueue("mm", tandem::cuda::Waits::kForNobody,
                     [&](cudaStream_t native) { return launch_reference(product, native); });
}

}  // namespace tandem::gemm::cuda
