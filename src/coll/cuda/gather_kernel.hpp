#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "coll/cuda/addresses.hpp"
#include "coll/cuda/grid_barrier.hpp"
#include "coll/cuda/mailboxes.hpp"
#include "device/cuda/kernel_list.hpp"

namespace tandem::coll::cuda {

/// out = all ranks' shards, one behind the other, read where their ranks publish them.
struct PublishedGather {
  const void* shard = nullptr;  ///< the own one
  void* published[kMaxAddresses] = {};
  void* out = nullptr;
  std::int64_t shard_bytes = 0;  ///< whole vectors of kVectorBytes
  /// Whether the own shard and out are at multiples of kVectorBytes: a rank's own affair.
  bool by_vectors = false;
};

/// Enqueues on `stream` of the current device. Blocks await the same blocks of other ranks once they have
/// published, without using the boxes, and all ranks have a barrier at the end.
[[nodiscard]] cudaError_t launch_published_gather(const PublishedGather& gather, const Mailboxes& boxes,
                                                  const GridBarrier& at_end, cudaStream_t stream);

[[nodiscard]] tandem::cuda::KernelList gather_kernels();

}  // namespace tandem::coll::cuda
