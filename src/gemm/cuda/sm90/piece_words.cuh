#pragma once

// What the exchange of pieces does with memory, an instruction of PTX each; see
// tandem/cuda/device_words.cuh.

#include <cstddef>
#include <cstdint>
#include <tandem/cuda/device_words.cuh>

namespace tandem::gemm::cuda {

/// A place in shared memory.
using SharedAddress = std::uint32_t;

__device__ inline SharedAddress shared_address(void* place) {
  return static_cast<SharedAddress>(__cvta_generic_to_shared(place));
}

/// Begins to load 16 bytes of this GPU's memory into shared memory; end_loads() closes a group of loads.
__device__ inline void begin_load(SharedAddress to, const std::byte* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(__cvta_generic_to_global(from))
               : "memory");
}

__device__ inline void end_loads() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}

/// Until all loads of this thread are over.
__device__ inline void await_loads() {
  asm volatile("cp.async.wait_group 0;" ::: "memory");
}

__device__ inline void fence_system() {
  asm volatile("fence.acq_rel.sys;" ::: "memory");
}

__device__ inline uint4 load_relaxed(const uint4* words) {
  uint4 value;
  asm volatile("ld.relaxed.sys.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "l"(__cvta_generic_to_global(words))
               : "memory");
  return value;
}

__device__ inline void load_acquire(const uint4* words) {
  [[maybe_unused]] uint4 value;
  asm volatile("ld.acquire.sys.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "l"(__cvta_generic_to_global(words))
               : "memory");
}

// Words of shared memory.

__device__ inline void store_release(SharedAddress word, std::uint32_t value) {
  asm volatile("st.release.cta.shared.u32 [%0], %1;" ::"r"(word), "r"(value) : "memory");
}

__device__ inline std::uint32_t load_relaxed(SharedAddress word) {
  std::uint32_t value = 0;
  asm volatile("ld.relaxed.cta.shared.u32 %0, [%1];" : "=r"(value) : "r"(word) : "memory");
  return value;
}

__device__ inline std::uint32_t load_acquire(SharedAddress word) {
  std::uint32_t value = 0;
  asm volatile("ld.acquire.cta.shared.u32 %0, [%1];" : "=r"(value) : "r"(word) : "memory");
  return value;
}

}  // namespace tandem::gemm::cuda
