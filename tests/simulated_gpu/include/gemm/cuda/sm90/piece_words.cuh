#pragma once

// The twin of gemm/cuda/sm90/piece_words.cuh for the simulated GPU: found before it.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <tandem/cuda/device_words.cuh>

namespace tandem::gemm::cuda {

using SharedAddress = std::uintptr_t;

inline SharedAddress shared_address(void* place) {
  return reinterpret_cast<SharedAddress>(place);
}

inline void begin_load(SharedAddress to, const std::byte* from) {
  std::memcpy(reinterpret_cast<void*>(to), from, 16);
}

inline void end_loads() {}

inline void await_loads() {}

inline uint4 load_vector(const std::byte* from) {
  return *reinterpret_cast<const uint4*>(from);
}

inline uint4 load_vector(SharedAddress from) {
  return *reinterpret_cast<const uint4*>(from);
}

inline void fence_system() {
  __atomic_thread_fence(__ATOMIC_ACQ_REL);
}

inline uint4 load_relaxed(const uint4* words) {
  simulated::pause();
  return {__atomic_load_n(&words->x, __ATOMIC_RELAXED), __atomic_load_n(&words->y, __ATOMIC_RELAXED),
          __atomic_load_n(&words->z, __ATOMIC_RELAXED), __atomic_load_n(&words->w, __ATOMIC_RELAXED)};
}

inline void load_acquire(const uint4* words) {
  for (const unsigned* word : {&words->x, &words->y, &words->z, &words->w})
    static_cast<void>(__atomic_load_n(word, __ATOMIC_ACQUIRE));
}

inline void store_release(SharedAddress word, std::uint32_t value) {
  __atomic_store_n(reinterpret_cast<std::uint32_t*>(word), value, __ATOMIC_RELEASE);
}

inline void store_relaxed(SharedAddress word, std::uint32_t value) {
  __atomic_store_n(reinterpret_cast<std::uint32_t*>(word), value, __ATOMIC_RELAXED);
}

inline std::uint32_t load_relaxed(SharedAddress word) {
  simulated::pause();
  return __atomic_load_n(reinterpret_cast<const std::uint32_t*>(word), __ATOMIC_RELAXED);
}

inline std::uint32_t load_acquire(SharedAddress word) {
  return __atomic_load_n(reinterpret_cast<const std::uint32_t*>(word), __ATOMIC_ACQUIRE);
}

inline void sync_warp_group(int group) {
  static thread_local int arrived[2] = {};
  static thread_local unsigned rounds[2] = {};
  const unsigned round = rounds[group];
  if (++arrived[group] == 128) {
    arrived[group] = 0;
    ++rounds[group];
  }
  while (rounds[group] == round) simulated::pause();
}

// The twin of a kernel synchronizes its whole block before any of its roles begins.
inline void greet_pusher() {}
inline void await_greeting() {}

}  // namespace tandem::gemm::cuda
