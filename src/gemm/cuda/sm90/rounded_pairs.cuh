#pragma once

// What is read and rounded beside f32 sums: two elements of 16 bits in a word, and a bias of any type.

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <cstring>

#include "gemm/cuda/sm90/sum_epilogue.hpp"

namespace tandem::gemm::cuda {

/// f16, or else bf16.
template <bool kIsHalf>
__device__ inline std::uint32_t rounded_pair(float first, float second) {
  std::uint32_t word = 0;
  if constexpr (kIsHalf) {
    const __half2 pair = __floats2half2_rn(first, second);
    std::memcpy(&word, &pair, sizeof(word));
  } else {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(first, second);
    std::memcpy(&word, &pair, sizeof(word));
  }
  return word;
}

template <bool kIsHalf>
__device__ inline float2 values_of(std::uint32_t word) {
  if constexpr (kIsHalf) {
    __half2 pair;
    std::memcpy(static_cast<void*>(&pair), &word, sizeof(word));
    return __half22float2(pair);
  } else {
    __nv_bfloat162 pair;
    std::memcpy(static_cast<void*>(&pair), &word, sizeof(word));
    return __bfloat1622float2(pair);
  }
}

__device__ inline float bias_at(const ColumnBias& bias, int column) {
  const int at = column * bias.stride;
  if (bias.dtype == DType::kF32) return static_cast<const float*>(bias.data)[at];
  if (bias.dtype == DType::kF16) return __half2float(static_cast<const __half*>(bias.data)[at]);
  return __bfloat162float(static_cast<const __nv_bfloat16*>(bias.data)[at]);
}

}  // namespace tandem::gemm::cuda
