#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <cstdint>
#include <tandem/base/dtype.hpp>

namespace tandem::cuda {

// Elements, to f32 and back with one rounding. f8 saturates.

__device__ inline float widen(float value) {
  return value;
}
__device__ inline float widen(__half value) {
  return __half2float(value);
}
__device__ inline float widen(__nv_bfloat16 value) {
  return __bfloat162float(value);
}
__device__ inline float widen(__nv_fp8_e4m3 value) {
  return static_cast<float>(value);
}
__device__ inline float widen(__nv_fp8_e5m2 value) {
  return static_cast<float>(value);
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
__device__ inline void narrow(float value, __nv_fp8_e4m3& to) {
  to = __nv_fp8_e4m3(value);
}
__device__ inline void narrow(float value, __nv_fp8_e5m2& to) {
  to = __nv_fp8_e5m2(value);
}

// The form of NaN that CPUs round the f32 0x7fc00000 to.

__device__ inline void set_nan(float& to) {
  to = __uint_as_float(0x7fc00000U);
}
__device__ inline void set_nan(__half& to) {
  to = __ushort_as_half(0x7e00U);
}
__device__ inline void set_nan(__nv_bfloat16& to) {
  to = __ushort_as_bfloat16(0x7fc0U);
}
__device__ inline void set_nan(__nv_fp8_e4m3& to) {
  to.__x = 0x7fU;
}
__device__ inline void set_nan(__nv_fp8_e5m2& to) {
  to.__x = 0x7eU;
}

/// narrow() with the bits of CPUs for every NaN.
template <class T>
__device__ inline void narrow_with_one_nan(float value, T& to) {
  if (value != value) return set_nan(to);
  narrow(value, to);
}

/// kWidth neighbouring elements, loaded and stored as one where 16 bytes hold them.
template <class T, int kWidth>
struct alignas(sizeof(T) * kWidth < 16 ? sizeof(T) * kWidth : 16) Pack {
  T values[kWidth];
};

// Elements of a type that only the call knows: f32, f16, bf16 or f8.

/// Calls `use` with a value of the type that stands for `dtype`.
template <class Use>
__device__ inline auto with_element_type(DType dtype, Use use) {
  switch (dtype) {
    case DType::kF16:
      return use(__half());
    case DType::kBF16:
      return use(__nv_bfloat16());
    case DType::kF8E4M3:
      return use(__nv_fp8_e4m3());
    case DType::kF8E5M2:
      return use(__nv_fp8_e5m2());
    default:
      return use(float());
  }
}

__device__ inline float load_widened(const void* data, std::int64_t at, DType dtype) {
  return with_element_type(dtype,
                           [&]<class T>(T /*type*/) { return widen(static_cast<const T*>(data)[at]); });
}

__device__ inline void store_narrowed(float value, void* data, std::int64_t at, DType dtype) {
  with_element_type(dtype,
                    [&]<class T>(T /*type*/) { narrow_with_one_nan(value, static_cast<T*>(data)[at]); });
}

}  // namespace tandem::cuda
