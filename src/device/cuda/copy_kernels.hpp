#pragma once

// Included by .cu files.

#include <cuda_runtime_api.h>

#include <cstdint>

#include "device/cuda/kernel_list.hpp"

namespace tandem::cuda {

/// Those of a tensor, and one more when its elements are moved in parts.
inline constexpr int kMaxCopyDims = 9;

/// A strided copy in units of 1, 2, 4, 8 or 16 bytes, to which both sides are aligned.
struct StridedCopy {
  const void* from = nullptr;
  void* to = nullptr;
  int unit_bytes = 1;
  int num_dims = 0;  ///< at least 1
  /// Not 0: the dimension in which `from` steps least, while `to` steps least in dimension 0. Then the copy
  /// goes by tiles of these two, so that reads and writes both touch neighbours.
  int tile_dim = 0;
  // Dimension 0 is the one in which `to` steps least. Strides in units, of any sign.
  std::int64_t sizes[kMaxCopyDims] = {};
  std::int64_t from_strides[kMaxCopyDims] = {};
  std::int64_t to_strides[kMaxCopyDims] = {};
};

[[nodiscard]] KernelList copy_kernels();
[[nodiscard]] cudaError_t launch_strided_copy(const StridedCopy& copy, cudaStream_t stream);

}  // namespace tandem::cuda
