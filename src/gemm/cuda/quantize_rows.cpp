#include "gemm/cuda/quantize_rows.hpp"

#include "base/try.hpp"
#include "device/cuda/cuda_stream.hpp"
#include "gemm/cuda/quantize_kernel.hpp"
#include "gemm/row_tensor.hpp"

namespace tandem::gemm::cuda {
namespace {

bool fits_vectors(const RowQuantization& rows) {
  return rows.k % kQuantizedTogether == 0 &&
         has_vectors(rows.input, rows.num_row_dims, rows.input_dtype, kQuantizedTogether) &&
         has_vectors(rows.out, rows.num_row_dims, rows.out_dtype, kQuantizedTogether);
}

}  // namespace

Result<void> QuantizeRows::run(const RowQuantization& rows, Stream& stream) const {
  TANDEM_ASSIGN(auto* const on, tandem::cuda::cuda_stream(stream, "quantize_rows"));
  return on->enqueue("quantize_rows", tandem::cuda::Waits::kForNobody,
                     [&](cudaStream_t native) { return launch_quantize(rows, fits_vectors(rows), native); });
}

}  // namespace tandem::gemm::cuda
