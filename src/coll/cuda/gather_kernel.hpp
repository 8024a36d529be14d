#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "coll/cuda/layer_sum_kernel.hpp"
#include "coll/cuda/meeting.hpp"
#include "device/cuda/kernel_list.hpp"

namespace tandem::coll::cuda {

/// out = the layers, one behind the other. All of whole vectors of kGatherVector bytes, at addresses that are
/// multiples of it.
struct LayerGather {
  const void* layers[kMaxAddresses] = {};
  int num_layers = 0;
  int first = 0;  ///< the layer that is read first; ranks begin with different ones
  std::int64_t layer_bytes = 0;
  void* out = nullptr;
};
inline constexpr std::int64_t kGatherVector = 16;

/// Enqueues on `stream` of the current device.
[[nodiscard]] cudaError_t launch_layer_gather(const LayerGather& gather, const Meeting& meeting,
                                              int max_blocks, cudaStream_t stream);

[[nodiscard]] tandem::cuda::KernelList gather_kernels();

}  // namespace tandem::coll::cuda
