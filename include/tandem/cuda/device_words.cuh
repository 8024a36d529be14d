#pragma once

// Words that several GPUs, and the host, read and write while kernels run: an instruction of PTX each, named
// after its order, where C++ has none. Loads, stores and swaps are of the scope of the whole system.

#include <cstdint>

namespace tandem::cuda {

__device__ inline std::int64_t global_time_ns() {
  std::int64_t time_ns = 0;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(time_ns));
  return time_ns;
}

__device__ inline std::uint32_t load_relaxed(const std::uint32_t* word) {
  std::uint32_t value = 0;
  asm volatile("ld.relaxed.sys.global.u32 %0, [%1];"
               : "=r"(value)
               : "l"(__cvta_generic_to_global(word))
               : "memory");
  return value;
}

__device__ inline std::uint32_t load_acquire(const std::uint32_t* word) {
  std::uint32_t value = 0;
  asm volatile("ld.acquire.sys.global.u32 %0, [%1];"
               : "=r"(value)
               : "l"(__cvta_generic_to_global(word))
               : "memory");
  return value;
}

__device__ inline void store_relaxed(std::uint32_t* word, std::uint32_t value) {
  asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(__cvta_generic_to_global(word)), "r"(value)
               : "memory");
}

__device__ inline void store_relaxed(std::uint64_t* word, std::uint64_t value) {
  asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(__cvta_generic_to_global(word)), "l"(value)
               : "memory");
}

__device__ inline void store_release(std::uint32_t* word, std::uint32_t value) {
  asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(__cvta_generic_to_global(word)), "r"(value)
               : "memory");
}

// Compare-and-swaps; each returns what it found.

__device__ inline std::uint32_t swap_release(std::uint32_t* word, std::uint32_t from, std::uint32_t to) {
  std::uint32_t seen = 0;
  asm volatile("atom.release.sys.global.cas.b32 %0, [%1], %2, %3;"
               : "=r"(seen)
               : "l"(__cvta_generic_to_global(word)), "r"(from), "r"(to)
               : "memory");
  return seen;
}

__device__ inline std::uint32_t swap_acquire(std::uint32_t* word, std::uint32_t from, std::uint32_t to) {
  std::uint32_t seen = 0;
  asm volatile("atom.acquire.sys.global.cas.b32 %0, [%1], %2, %3;"
               : "=r"(seen)
               : "l"(__cvta_generic_to_global(word)), "r"(from), "r"(to)
               : "memory");
  return seen;
}

__device__ inline std::uint32_t swap_relaxed(std::uint32_t* word, std::uint32_t from, std::uint32_t to) {
  std::uint32_t seen = 0;
  asm volatile("atom.relaxed.sys.global.cas.b32 %0, [%1], %2, %3;"
               : "=r"(seen)
               : "l"(__cvta_generic_to_global(word)), "r"(from), "r"(to)
               : "memory");
  return seen;
}

/// Orders later tensor loads after what this thread has acquired. Tensor loads go through another proxy than
/// the loads above.
__device__ inline void fence_tensor_loads() {
  asm volatile("fence.proxy.async.global;" ::: "memory");
}

}  // namespace tandem::cuda
