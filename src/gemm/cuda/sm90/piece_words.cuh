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

/// 16 bytes that another GPU has written while this kernel ran: past the first-level cache.
__device__ inline uint4 load_vector(const std::byte* from) {
  return __ldcg(reinterpret_cast<const uint4*>(from));
}

__device__ inline uint4 load_vector(SharedAddress from) {
  uint4 value;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "r"(from)
               : "memory");
  return value;
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

__device__ inline void store_relaxed(SharedAddress word, std::uint32_t value) {
  asm volatile("st.relaxed.cta.shared.u32 [%0], %1;" ::"r"(word), "r"(value) : "memory");
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

// Barriers of a CTA's warps: two warp groups of 128 threads that multiply, and a warp that pushes.

/// By the threads of one of the two groups, together.
__device__ inline void sync_warp_group(int group) {
  constexpr int kFirstBarrier = 10;  // CUTLASS's own, and a kernel's meeting, come before
  asm volatile("barrier.sync %0, 128;" ::"r"(kFirstBarrier + group) : "memory");
}

/// By both groups, once they have met the warp that sets up what they share with the one that pushes.
__device__ inline void greet_pusher() {
  asm volatile("barrier.arrive 12, 288;" ::: "memory");
}

/// By the warp that pushes: behind that.
__device__ inline void await_greeting() {
  asm volatile("barrier.sync 12, 288;" ::: "memory");
}

}  // namespace tandem::gemm::cuda
