#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <tandem/base/dtype.hpp>

#include "device/cuda/kernel_list.hpp"
#include "gemm/cuda/strided_matrix.hpp"

namespace tandem::gemm::cuda {

/// out[i, j] = product[i, j] + bias[j], added in f32 and rounded once. An f32 out may be the product itself.
struct Rounding {
  std::int64_t m = 0;
  std::int64_t n = 0;
  const float* product = nullptr;
  std::int64_t product_stride = 0;  ///< from row to row
  StridedMatrix out;
  DType out_dtype = DType::kF32;
  const void* bias = nullptr;  ///< of out's type
  std::int64_t bias_stride = 0;

  /// Columns that a thread takes at once: 1, or round_vector_elements(). The latter needs n, the strides of
  /// rows and the addresses of product and out to be multiples of it, and a column stride of 1.
  bool by_vectors = false;
};

/// As many elements of out as 16 bytes hold.
[[nodiscard]] constexpr std::int64_t round_vector_elements(DType out_dtype) {
  return 16 / size_bytes(out_dtype);
}

/// Enqueues on `stream` of the current device.
[[nodiscard]] cudaError_t launch_round(const Rounding& rounding, cudaStream_t stream);

[[nodiscard]] tandem::cuda::KernelList round_kernels();

}  // namespace tandem::gemm::cuda
