#pragma once

// How a kernel notes a wait for a timeline. A kernel that notes none pays one look at a parameter a wait.

#include <cstdint>
#include <tandem/cuda/device_words.cuh>
#include <tandem/device/chunk_waits.hpp>

namespace tandem::cuda {

/// Waits that are shorter are not noted: to note one takes about as long.
inline constexpr std::int64_t kShortestNotedWaitNs = 1000;

/// By one thread: that it has waited for `chunk` since `begin_ns` of global_time_ns(), until now.
__device__ inline void note_wait(const ChunkWaitLog& log, std::int64_t begin_ns, int chunk) {
  const std::int64_t end_ns = global_time_ns();
  if (end_ns - begin_ns < kShortestNotedWaitNs) return;
  const std::uint32_t place = atomicAdd(log.count, 1U);
  if (place >= log.capacity) return;
  log.waits[place] = {.begin = begin_ns, .end = end_ns, .chunk = chunk, .tag = log.tag};
}

}  // namespace tandem::cuda
