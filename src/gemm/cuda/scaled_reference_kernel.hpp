#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "device/cuda/kernel_list.hpp"
#include "gemm/cuda/strided_matrix.hpp"
#include "gemm/cuda/sums_epilogue.hpp"

namespace tandem::gemm::cuda {

/// A scale of b by blocks of k: number [block of k, column / columns_each].
struct BlockScale {
  const float* data = nullptr;  ///< null: 1
  std::int64_t block_stride = 0;
  std::int64_t col_stride = 0;
  std::int64_t columns_each = 1;
};

/// A scaled product as the kernel sees it: types are values, strides any. The bits of the CPU's kernels.
struct ScaledReferenceProduct {
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  RowTensor a;
  StridedMatrix b;
  DType a_dtype = DType::kF32;
  DType b_dtype = DType::kF32;
  /// Whether each block's sum is multiplied by the product of these two.
  bool is_scaled_along_k = false;
  RowTensor a_scale;  ///< col_stride: from one block of k to the next
  BlockScale b_scale;
  SumsEpilogue epilogue;
};
[[nodiscard]] ScaledReferenceProduct scaled_reference_product_of(const Product& product,
                                                                 const ProductArgs& args);

/// Enqueues on `stream` of the current device.
[[nodiscard]] cudaError_t launch_scaled_reference(const ScaledReferenceProduct& product, cudaStream_t stream);

[[nodiscard]] tandem::cuda::KernelList scaled_reference_kernels();

}  // namespace tandem::gemm::cuda
