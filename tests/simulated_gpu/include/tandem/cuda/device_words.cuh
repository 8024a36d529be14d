#pragma once

// The twin of tandem/cuda/device_words.cuh for the simulated GPU: found before it.

#include <chrono>
#include <cstdint>

namespace tandem::cuda {

inline std::int64_t global_time_ns() {
  simulated::pause();
  return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
}

inline std::uint32_t load_relaxed(const std::uint32_t* word) {
  simulated::pause();
  return __atomic_load_n(word, __ATOMIC_RELAXED);
}

inline std::uint32_t load_acquire(const std::uint32_t* word) {
  return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

inline void store_relaxed(std::uint32_t* word, std::uint32_t value) {
  __atomic_store_n(word, value, __ATOMIC_RELAXED);
}

inline void store_relaxed(std::uint64_t* word, std::uint64_t value) {
  __atomic_store_n(word, value, __ATOMIC_RELAXED);
}

inline void store_release(std::uint32_t* word, std::uint32_t value) {
  __atomic_store_n(word, value, __ATOMIC_RELEASE);
}

inline std::uint32_t swap_release(std::uint32_t* word, std::uint32_t from, std::uint32_t to) {
  __atomic_compare_exchange_n(word, &from, to, false, __ATOMIC_RELEASE, __ATOMIC_RELAXED);
  return from;
}

inline std::uint32_t swap_acquire(std::uint32_t* word, std::uint32_t from, std::uint32_t to) {
  __atomic_compare_exchange_n(word, &from, to, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);
  return from;
}

inline std::uint32_t swap_relaxed(std::uint32_t* word, std::uint32_t from, std::uint32_t to) {
  __atomic_compare_exchange_n(word, &from, to, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
  return from;
}

inline void fence_tensor_loads() {}

}  // namespace tandem::cuda
