#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <tandem/base/dtype.hpp>
#include <tandem/base/shape.hpp>

#include "coll/cuda/addresses.hpp"
#include "coll/cuda/grid_barrier.hpp"
#include "coll/cuda/mailboxes.hpp"
#include "coll/cuda/vectors.hpp"
#include "device/cuda/kernel_list.hpp"

namespace tandem::coll::cuda {

/// out = the sum of the layers in the order 0, 1, ..., divided by `divisor`, plus the bias, rounded once; f32
/// in between. The bits of the CPU's sum, NaN payloads aside.
struct LayerSum {
  /// Layer r, contiguous, is `round_bytes * (r / kMaxAddresses)` behind layers[r % kMaxAddresses].
  const void* layers[kMaxAddresses] = {};
  std::int64_t round_bytes = 0;
  int num_layers = 0;
  DType in_dtype = DType::kF32;
  DType out_dtype = DType::kF32;

  /// Elements that a thread takes at once: 1, or as many of the layers' type as 16 bytes hold. The latter
  /// needs sizes, strides and addresses that are multiples of it, and a last stride of 1.
  bool by_vectors = false;
  std::int64_t num_elements = 0;
  void* out = nullptr;
  int num_dims = 1;  ///< of out, adjacent ones merged where they lie behind each other
  std::int64_t sizes[kMaxDims] = {};
  std::int64_t strides[kMaxDims] = {};

  float divisor = 1.0F;
  const void* bias = nullptr;  ///< of out's type; null: none
  std::int64_t bias_size = 1;
  std::int64_t bias_stride = 0;
};

/// Enqueues on `stream` of the current device, in at most `max_blocks` blocks of kLayerSumThreads.
[[nodiscard]] cudaError_t launch_layer_sum(const LayerSum& sum, int max_blocks, cudaStream_t stream);

/// The same between two barriers. Blocks first await the same blocks of other ranks, without using the boxes,
/// so all ranks have as many, whatever they sum: `largest_bytes` is the size of the largest rank's layer.
/// Where the ranks have passed a barrier already, in at most `max_blocks`. All ranks have one at the end.
struct SumBarriers {
  Mailboxes before;  ///< of no pieces: the ranks have passed a barrier already
  GridBarrier at_end;
};
[[nodiscard]] cudaError_t launch_layer_sum(const LayerSum& sum, const SumBarriers& barriers,
                                           std::int64_t largest_bytes, int max_blocks, cudaStream_t stream);
inline constexpr int kLayerSumThreads = 512;

/// Elements of a vector of `in_dtype`.
[[nodiscard]] constexpr int vector_elements(DType in_dtype) {
  return static_cast<int>(kVectorBytes / size_bytes(in_dtype));
}

[[nodiscard]] tandem::cuda::KernelList layer_sum_kernels();

}  // namespace tandem::coll::cuda
