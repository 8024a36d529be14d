#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>

// The built-in variables, of the thread that runs.
extern thread_local uint3 threadIdx;
extern thread_local uint3 blockIdx;
extern thread_local dim3 blockDim;
extern thread_local dim3 gridDim;

namespace tandem::simulated {

/// How many blocks, or threads, an extent has, and which place number `number` is.
[[nodiscard]] inline std::size_t count_of(const dim3& extent) {
  return std::size_t{extent.x} * extent.y * extent.z;
}
[[nodiscard]] inline uint3 place_in(const dim3& extent, unsigned number) {
  return {number % extent.x, number / extent.x % extent.y, number / extent.x / extent.y};
}

/// A launch of a kernel: `body` is the kernel with its arguments, called once a thread.
struct Launch {
  dim3 grid;
  dim3 block;
  std::function<void()> body;
};

/// Runs block `index` of a launch on the calling host thread, to its end. Its threads are fibers, which take
/// turns where they meet or poll; so memory that is shared by a block may be the host thread's own.
void run_block(const Launch& launch, uint3 index);

// For kernels: the calling thread is one of a block that runs.

/// Where a thread polls: the others of its block, and other blocks, get a turn.
void pause();
/// __syncthreads(): of all threads of the block that have not returned. Whether `value` was true for each.
bool sync_block(bool value = true);
/// What each lane of the calling thread's warp has brought; all that have not returned have to come.
std::array<std::uint64_t, 32> exchange_in_warp(std::uint64_t value);

}  // namespace tandem::simulated
