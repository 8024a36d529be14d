#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "coll/cuda/layer_sum_kernel.hpp"
#include "coll/cuda/mailboxes.hpp"
#include "device/cuda/kernel_list.hpp"

namespace tandem::coll::cuda {

/// A rank's bytes [begin, begin + size) of something that all ranks have a part of.
struct Part {
  std::int64_t begin = 0;
  std::int64_t size = 0;
};

/// out = all ranks' shards, one behind the other.
struct ExchangedGather {
  const void* shard = nullptr;
  void* out = nullptr;
  Part parts[kMaxAddresses] = {};  ///< of out, by rank
  /// Whether parts and addresses are multiples of 16 bytes: a rank's own affair.
  bool by_vectors = false;
};
/// Enqueues on `stream` of the current device. `pieces`: of the largest part.
[[nodiscard]] cudaError_t launch_exchanged_gather(const ExchangedGather& gather, const Mailboxes& boxes,
                                                  const Pieces& pieces, cudaStream_t stream);

/// out = the sum of all ranks' chunks for this rank, as LayerSum; its layers are not looked at.
struct ExchangedSum {
  LayerSum sum;
  const void* input = nullptr;
  Part parts[kMaxAddresses] = {};  ///< of the input, by the rank that sums them
};
[[nodiscard]] cudaError_t launch_exchanged_sum(const ExchangedSum& sum, const Mailboxes& boxes,
                                               const Pieces& pieces, cudaStream_t stream);

[[nodiscard]] tandem::cuda::KernelList exchange_kernels();

}  // namespace tandem::coll::cuda
