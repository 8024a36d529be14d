#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace tandem::cuda {

// Elements, to f32 and back with one rounding.

__device__ inline float widen(float value) {
  return value;
}
__device__ inline float widen(__half value) {
  return __half2float(value);
}
__device__ inline float widen(__nv_bfloat16 value) {
  return __bfloat162float(value);
}
__device__ inline void narrow(float value, float& to) {
  to = value;
}
__device__ inline void narrow(float value, __half& to) {
  to = __float2half_rn(value);
}
__device__ inline void narrow(float value, __nv_bfloat16& to) {
  to = __float2bfloat16_rn(value);
}

}  // namespace tandem::cuda
