#pragma once

// How a kernel waits for a chunk that another GPU or a copy engine sends. Kernels of CUTLASS do so by
// tandem/gemm/async_input_scheduler.cuh.

#include <cstdint>
#include <tandem/cuda/note_wait.cuh>
#include <tandem/symm/kernel_device.cuh>

namespace tandem::symm {

/// One signal for each chunk, and how a wait ends that does not get its signal.
struct ChunkSignals {
  const std::uint32_t* words = nullptr;  ///< chunk i is there once (int32) (words[i] - expected) >= 0
  std::uint32_t expected = 1;
  std::int32_t complete_begin = 0;  ///< chunks [complete_begin, complete_end) are there from the start
  std::int32_t complete_end = 0;
  std::int32_t first_number = 0;     ///< what chunk 0 is called in errors
  std::int32_t chunks_per_rank = 0;  ///< chunk number i comes from rank i / chunks_per_rank; 0: not told
  KernelHandle waits;                ///< whose deadline and whose control memory
  ChunkWaitLog log;                  ///< where waits are noted, if anywhere

  [[nodiscard]] __host__ __device__ bool has_come(std::uint32_t word) const {
    return static_cast<std::int32_t>(word - expected) >= 0;
  }
  [[nodiscard]] __host__ __device__ bool is_complete(int chunk) const {
    return chunk >= complete_begin && chunk < complete_end;
  }
};

/// For a thread that loads from a chunk after another thread of its warp has seen the signal.
__device__ inline void acquire_chunk(const ChunkSignals& signals, int chunk) {
  static_cast<void>(detail::load_acquire(signals.words + chunk));
  tandem::cuda::fence_tensor_loads();
}

/// Waits for the chunk; one thread calls it. What the sender's stream did before the signal is visible to
/// this thread afterwards, also to its tensor loads. It returns false if the wait gave up. The fault record
/// is written then, and Stream::synchronize() of a stream that watches returns it.
///
/// Memory order: the poll is relaxed and decides nothing. The acquire load after it reads the sender's value,
/// or a later one of the same sender. So it synchronises with the release before that value, which is the
/// fence of a stream write or of a kernel. Tensor loads go through another proxy than the acquire, and the
/// fence orders them after it. A full fence would also wait for this SM's own stores to other GPUs.
__device__ inline bool await_chunk(const ChunkSignals& signals, int chunk) {
  const std::uint32_t* const word = signals.words + chunk;
  const int number = signals.first_number + chunk;
  const int sender = signals.chunks_per_rank > 0 ? number / signals.chunks_per_rank : signals.waits.rank;
  std::int64_t begin_ns = 0;
  const bool has_come = detail::wait_until(signals.waits, {KernelCall::kAwaitChunk, sender, number},
                                           signals.expected, begin_ns, [&](std::uint32_t& seen) {
                                             seen = detail::load_relaxed(word);
                                             return signals.has_come(seen);
                                           });
  if (has_come) acquire_chunk(signals, chunk);
  if (begin_ns != 0 && signals.log.waits != nullptr) tandem::cuda::note_wait(signals.log, begin_ns, number);
  return has_come;
}

}  // namespace tandem::symm
