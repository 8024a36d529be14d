#pragma once

// What nvcc gives a .cu file, for the host's compiler: comes before the file, which is compiled as C++.

#include <cuda_runtime_api.h>

#include <bit>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <thread>
#include <tuple>
#include <type_traits>
#include <utility>

#include "launch.hpp"

#define TANDEM_SIMULATED_GPU 1

#undef __global__
#undef __device__
#undef __host__
#undef __shared__
#undef __grid_constant__
#undef __launch_bounds__
#define __global__
#define __device__
#define __host__
// The threads of a block are on one host thread, and it runs one block at a time.
#define __shared__ static thread_local
#define __grid_constant__
#define __launch_bounds__(...)

inline void __syncthreads() {
  ::tandem::simulated::sync_block();
}
inline int __syncthreads_and(int value) {
  return ::tandem::simulated::sync_block(value != 0) ? 1 : 0;
}
// Of whole warps, as tandem calls them.
inline void __syncwarp() {
  ::tandem::simulated::exchange_in_warp(0);
}
inline std::uint64_t __shfl_sync(unsigned, std::uint64_t value, int lane) {
  return ::tandem::simulated::exchange_in_warp(value)[static_cast<std::size_t>(lane)];
}
inline unsigned __ballot_sync(unsigned, bool value) {
  const auto all = ::tandem::simulated::exchange_in_warp(value ? 1 : 0);
  unsigned bits = 0;
  for (std::size_t lane = 0; lane < all.size(); ++lane) bits |= static_cast<unsigned>(all[lane]) << lane;
  return bits;
}
inline bool __all_sync(unsigned mask, bool value) {
  return __ballot_sync(mask, value) == mask;
}
inline unsigned __reduce_max_sync(unsigned, unsigned value) {
  for (const std::uint64_t one : ::tandem::simulated::exchange_in_warp(value))
    value = one > value ? static_cast<unsigned>(one) : value;
  return value;
}
inline int __ffs(int bits) {
  return __builtin_ffs(bits);
}
inline int __ffsll(long long bits) {
  return __builtin_ffsll(bits);
}
inline void __threadfence() {
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
}
inline void __threadfence_block() {
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
}
inline void __nanosleep(unsigned duration_ns) {
  ::tandem::simulated::pause();
  if (duration_ns > 1000) std::this_thread::sleep_for(std::chrono::nanoseconds(duration_ns));
}
inline unsigned atomicAdd(unsigned* word, unsigned value) {
  return __atomic_fetch_add(word, value, __ATOMIC_RELAXED);
}
inline unsigned atomicCAS(unsigned* word, unsigned expected, unsigned value) {
  __atomic_compare_exchange_n(word, &expected, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
  return expected;
}
inline unsigned long long atomicAdd(unsigned long long* word, unsigned long long value) {
  return __atomic_fetch_add(word, value, __ATOMIC_RELAXED);
}
inline unsigned long long atomicExch(unsigned long long* word, unsigned long long value) {
  return __atomic_exchange_n(word, value, __ATOMIC_RELAXED);
}
inline unsigned long long atomicMin(unsigned long long* word, unsigned long long value) {
  unsigned long long seen = __atomic_load_n(word, __ATOMIC_RELAXED);
  while (value < seen &&
         !__atomic_compare_exchange_n(word, &seen, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
  }
  return seen;
}
// Two roundings instead of one, and no call of a function where the host has no such instruction.
#define fmaf(a, b, c) ((a) * (b) + (c))
// Each rounded: the host code has no fused instructions to contract them to.
inline float __fmul_rn(float a, float b) {
  return a * b;
}
inline float __fadd_rn(float a, float b) {
  return a + b;
}
inline float __fdiv_rn(float a, float b) {
  return a / b;
}
inline unsigned __float_as_uint(float value) {
  return std::bit_cast<unsigned>(value);
}
inline float __uint_as_float(unsigned bits) {
  return std::bit_cast<float>(bits);
}

template <class A, class B>
constexpr std::common_type_t<A, B> min(A a, B b) {
  return a < b ? std::common_type_t<A, B>(a) : std::common_type_t<A, B>(b);
}
template <class A, class B>
constexpr std::common_type_t<A, B> max(A a, B b) {
  return a < b ? std::common_type_t<A, B>(b) : std::common_type_t<A, B>(a);
}

// Launches, and what else the runtime has templates for.

template <class... Parameters, class... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...),
                               Arguments&&... arguments) {
  std::tuple<std::remove_cv_t<Parameters>...> copied(std::forward<Arguments>(arguments)...);
  return ::tandem::simulated::enqueue_launch({.grid = config->gridDim,
                                              .block = config->blockDim,
                                              .body = [kernel, copied] { std::apply(kernel, copied); }},
                                             config->stream);
}

template <class Parameter>
cudaError_t cudaLaunchKernel(void (*kernel)(Parameter), dim3 grid, dim3 block, void** arguments, std::size_t,
                             cudaStream_t stream) {
  const cudaLaunchConfig_t config = {.gridDim = grid,
                                     .blockDim = block,
                                     .dynamicSmemBytes = 0,
                                     .stream = stream,
                                     .attrs = nullptr,
                                     .numAttrs = 0};
  return cudaLaunchKernelEx(&config, kernel, *static_cast<const Parameter*>(arguments[0]));
}

template <class... Parameters>
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, void (*kernel)(Parameters...)) {
  return cudaFuncGetAttributes(attributes, reinterpret_cast<const void*>(kernel));
}
