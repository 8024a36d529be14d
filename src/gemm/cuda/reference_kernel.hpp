#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <tandem/base/dtype.hpp>

#include "device/cuda/kernel_list.hpp"
#include "gemm/cuda/strided_matrix.hpp"

namespace tandem::gemm::cuda {

/// A product as the kernel sees it. f32 sums in ascending k by fused multiply-add, from out's value when
/// accumulating; then the bias, the addend and one rounding: the bits of the CPU's kernels, NaN payloads
/// aside.
struct ReferenceProduct {
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  StridedMatrix a;
  StridedMatrix b;
  StridedMatrix out;
  const void* bias = nullptr;  ///< of out's type; null: none
  std::int64_t bias_stride = 0;
  StridedMatrix addend = {};  ///< of out's type; without memory: none. It may be out
  DType in_dtype = DType::kF32;
  DType out_dtype = DType::kF32;
  bool accumulate = false;
};

/// Enqueues on `stream` of the current device.
[[nodiscard]] cudaError_t launch_reference(const ReferenceProduct& product, cudaStream_t stream);

[[nodiscard]] tandem::cuda::KernelList reference_kernels();

}  // namespace tandem::gemm::cuda
