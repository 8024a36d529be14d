#pragma once

// The meeting of all ranks at a kernel's end: a barrier kernel less. One block waits, the others are gone, so
// kernels of other groups find room beside it.
//
// Memory order. Each block passes a __syncthreads(), then a fence and an atomic of one thread. The last
// block's atomic reads those of all others, and a fence and a __syncthreads() come behind it; its threads put
// with release and take with acquire (the slots' order: kernel_device.cuh). So what all blocks of this kernel
// have read and written, and what stands before it in its stream, happens before whatever peers do behind
// their meeting, and theirs before the next kernel of this stream.
//
// A wait that gives up leaves its record (kernel_device.cuh), and the kernel ends: the count is zero again.

#include <tandem/symm/kernel_device.cuh>

#include "coll/cuda/meeting.hpp"

namespace tandem::coll::cuda {

/// By all threads of all blocks, last.
__device__ inline void meet_behind(const Meeting& meeting) {
  if (meeting.num_done == nullptr) return;
  __shared__ bool is_last;
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();
    is_last = atomicAdd(meeting.num_done, 1U) == gridDim.x - 1;
    if (is_last) *meeting.num_done = 0;
    __threadfence();
  }
  __syncthreads();
  if (!is_last) return;
  static_cast<void>(symm::detail::meet(meeting.ranks, symm::KernelCall::kBarrier, meeting.channel,
                                       static_cast<int>(threadIdx.x), static_cast<int>(blockDim.x),
                                       symm::PutOrder::kRelease, symm::WaitOrder::kAcquire));
}

}  // namespace tandem::coll::cuda
