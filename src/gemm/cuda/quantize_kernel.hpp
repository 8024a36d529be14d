#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "device/cuda/kernel_list.hpp"
#include "gemm/row_quantization.hpp"

namespace tandem::gemm::cuda {

/// Elements that a thread loads and stores at once on the way by vectors. It needs k, the strides of rows
/// and the addresses of input and out to be multiples of it, and column strides of 1.
inline constexpr std::int64_t kQuantizedTogether = 4;

/// Enqueues on `stream` of the current device.
[[nodiscard]] cudaError_t launch_quantize(const RowQuantization& rows, bool by_vectors, cudaStream_t stream);

[[nodiscard]] tandem::cuda::KernelList quantize_kernels();

}  // namespace tandem::gemm::cuda
