#pragma once

// The barrier of all ranks at a kernel's end: a kernel less. One block waits, the others are gone, so
// kernels of other groups find room beside it.
//
// Memory order. Each block passes a __syncthreads(), then a fence and an atomic of one thread. The last
// block's atomic reads those of all others, and a fence and a __syncthreads() come behind it; its threads put
// with release and take with acquire (the slots' order: kernel_device.cuh). So what all blocks of this kernel
// have read and written, and what stands before it in its stream, happens before whatever peers do behind
// their barrier, and theirs before the next kernel of this stream.
//
// A wait that gives up leaves its record (kernel_device.cuh), and the kernel ends: the count is zero again.
// Nor does a rank come to it one of whose blocks has given up before: it would tell its peers that it has
// read.

#include <tandem/symm/kernel_device.cuh>

#include "coll/cuda/grid_barrier.hpp"

namespace tandem::coll::cuda {

/// By all threads of all blocks, last. `ok`: whether this block has done its work; the same for its threads.
__device__ inline void barrier_at_end(const GridBarrier& barrier, bool ok) {
  if (barrier.num_done == nullptr) return;
  constexpr unsigned kOneFailed = 1U << 16;  // beside the count of blocks, of which there are fewer
  __shared__ bool is_last;
  __shared__ bool all_ok;
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();
    const unsigned before = atomicAdd(barrier.num_done, ok ? 1U : 1U + kOneFailed);
    is_last = before % kOneFailed == gridDim.x - 1;
    all_ok = ok && before < kOneFailed;
    if (is_last) *barrier.num_done = 0;
    __threadfence();
  }
  __syncthreads();
  if (!is_last || !all_ok) return;
  static_cast<void>(symm::detail::meet(barrier.ranks, symm::KernelCall::kBarrier, barrier.channel,
                                       static_cast<int>(threadIdx.x), static_cast<int>(blockDim.x),
                                       symm::PutOrder::kRelease, symm::WaitOrder::kAcquire));
}

}  // namespace tandem::coll::cuda
