#pragma once

// Included by .cu files.

#include <cuda_runtime_api.h>

#include <cstdint>
#include <tandem/symm/kernel.hpp>

#include "device/cuda/kernel_list.hpp"

namespace tandem::symm::cuda {

[[nodiscard]] tandem::cuda::KernelList signal_kernels();

// Arguments are checked.

/// `word`: the slot of this rank and `channel` in dst's pad.
[[nodiscard]] cudaError_t launch_put_signal(const KernelHandle& handle, std::uint32_t* word, int dst,
                                            int channel, cudaStream_t stream);
/// `word`: the slot of src and `channel` in the own pad.
[[nodiscard]] cudaError_t launch_wait_signal(const KernelHandle& handle, std::uint32_t* word, int src,
                                             int channel, cudaStream_t stream);
/// More than one rank.
[[nodiscard]] cudaError_t launch_barrier(const KernelHandle& handle, int channel, cudaStream_t stream);

/// AwaitedChunks as the kernel takes them.
struct ChunkRange {
  const std::uint32_t* words;
  std::uint32_t expected;
  int first;
  int count;
  int chunks_per_rank;
};
/// One chunk or more.
[[nodiscard]] cudaError_t launch_await_chunks(const KernelHandle& handle, const ChunkRange& chunks,
                                              cudaStream_t stream);

/// `count` words = 0, then a barrier. The next kernel may begin early: see device/cuda/next_kernel.cuh.
[[nodiscard]] cudaError_t launch_reset_words(const KernelHandle& handle, std::uint32_t* words,
                                             std::int64_t count, int channel, cudaStream_t stream);

/// For injected faults.
[[nodiscard]] cudaError_t launch_flip_bit(std::uint8_t* byte, std::uint8_t bit, cudaStream_t stream);

}  // namespace tandem::symm::cuda
