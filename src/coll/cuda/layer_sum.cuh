#pragma once

// How threads add layers: each makes kWidth neighbouring elements at a time, and loads them from up to
// kLayerBatch layers before it adds the first, since a layer may lie in a peer's memory, a few microseconds
// away.

#include <type_traits>

#include "coll/cuda/layer_sum_kernel.hpp"
#include "device/cuda/elements.cuh"

namespace tandem::coll::cuda {

inline constexpr int kLayerBatch = 8;

template <class In, class Out, int kWidth>
struct Types {};

using tandem::cuda::narrow;
using tandem::cuda::widen;

using tandem::cuda::Pack;

/// A Pack of bf16 or f8 as whole words: the compiler would give each element a register of its own.
template <class T>
struct alignas(16) PackWords {
  std::uint32_t words[4];
};

template <class T, int kWidth>
inline constexpr bool kIsWords =
    (std::is_same_v<T, __nv_bfloat16> || sizeof(T) == 1) && kWidth * sizeof(T) == sizeof(PackWords<T>);

/// What a thread holds of kWidth neighbouring elements.
template <class T, int kWidth>
using Held = std::conditional_t<kIsWords<T, kWidth>, PackWords<T>, Pack<T, kWidth>>;

template <class T, int kWidth>
__device__ float value_of(const Pack<T, kWidth>& pack, int i) {
  return widen(pack.values[i]);
}
__device__ inline float value_of(const PackWords<__nv_bfloat16>& pack, int i) {
  const std::uint32_t word = pack.words[i / 2];
  return __uint_as_float(i % 2 == 0 ? word << 16 : word & 0xffff0000U);
}
template <class T>
requires(sizeof(T) == 1) __device__ float value_of(const PackWords<T>& pack, int i) {
  T value;
  value.__x = static_cast<unsigned char>(pack.words[i / 4] >> (i % 4 * 8));
  return widen(value);
}

template <class T, int kWidth>
__device__ Held<T, kWidth> load(const void* data, std::int64_t at) {
  return *reinterpret_cast<const Held<T, kWidth>*>(static_cast<const T*>(data) + at);
}

template <class T, int kWidth>
__device__ void store(const float (&values)[kWidth], T* to) {
  Pack<T, kWidth> pack;
#pragma unroll
  for (int i = 0; i < kWidth; ++i) narrow(values[i], pack.values[i]);
  *reinterpret_cast<Pack<T, kWidth>*>(to) = pack;
}
__device__ inline void store(const float (&values)[8], __nv_bfloat16* to) {
  PackWords<__nv_bfloat16> pack;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(values[2 * i], values[2 * i + 1]);
    pack.words[i] = *reinterpret_cast<const std::uint32_t*>(&pair);
  }
  *reinterpret_cast<PackWords<__nv_bfloat16>*>(to) = pack;
}

template <class T>
requires(sizeof(T) == 1) __device__ void store(const float (&values)[16], T* to) {
  PackWords<T> pack = {};
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    T narrowed;
    narrow(values[i], narrowed);
    pack.words[i / 4] |= static_cast<std::uint32_t>(narrowed.__x) << (i % 4 * 8);
  }
  *reinterpret_cast<PackWords<T>*>(to) = pack;
}

/// Adds element `at` and its neighbours of layers 0, 1, ..., `num_layers` - 1, each at address_of(layer).
template <class In, int kWidth, int kBatch = kLayerBatch, class AddressOf>
__device__ void add_layers(int num_layers, AddressOf address_of, std::int64_t at, float (&sums)[kWidth]) {
  // The sum of one layer is that layer, also where it is -0.
#pragma unroll
  for (int i = 0; i < kWidth; ++i) sums[i] = -0.0F;
  for (int first = 0; first < num_layers; first += kBatch) {
    Held<In, kWidth> packs[kBatch];
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      if (first + i < num_layers) packs[i] = load<In, kWidth>(address_of(first, i), at);
    }
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      if (first + i >= num_layers) continue;
#pragma unroll
      for (int j = 0; j < kWidth; ++j) sums[j] += value_of(packs[i], j);
    }
  }
}

/// Where element `at`, counted row-major, is in out. Units: elements.
__device__ inline std::int64_t offset_in_out(const LayerSum& sum, std::int64_t at) {
  std::int64_t offset = 0;
  for (int d = sum.num_dims - 1; d > 0; --d) {
    offset += at % sum.sizes[d] * sum.strides[d];
    at /= sum.sizes[d];
  }
  return offset + at * sum.strides[0];
}

/// Divides, adds the bias, rounds and stores elements `at` and its neighbours of the output.
template <class Out, int kWidth>
__device__ void finish(const LayerSum& sum, std::int64_t at, float (&sums)[kWidth]) {
  if (sum.divisor != 1.0F) {
#pragma unroll
    for (int i = 0; i < kWidth; ++i) sums[i] /= sum.divisor;
  }
  if (sum.bias != nullptr) {
    const auto bias = load<Out, kWidth>(sum.bias, at % sum.bias_size * sum.bias_stride);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) sums[i] += value_of(bias, i);
  }
  store(sums, static_cast<Out*>(sum.out) + offset_in_out(sum, at));
}

/// f(Types<In, Out, kWidth>()) for the type pairs that check_sum lets through: equal, or one of them f32.
template <class F>
auto with_types(DType in, DType out, bool by_vectors, F f) {
  const auto of = [&]<class In, class Out>(Types<In, Out, 1> single) {
    return by_vectors ? f(Types<In, Out, static_cast<int>(kVectorBytes / sizeof(In))>()) : f(single);
  };
  switch (in) {
    case DType::kBF16:
      return out == DType::kF32 ? of(Types<__nv_bfloat16, float, 1>())
                                : of(Types<__nv_bfloat16, __nv_bfloat16, 1>());
    case DType::kF16:
      return out == DType::kF32 ? of(Types<__half, float, 1>()) : of(Types<__half, __half, 1>());
    case DType::kF8E4M3:
      return out == DType::kF32 ? of(Types<__nv_fp8_e4m3, float, 1>())
                                : of(Types<__nv_fp8_e4m3, __nv_fp8_e4m3, 1>());
    case DType::kF8E5M2:
      return out == DType::kF32 ? of(Types<__nv_fp8_e5m2, float, 1>())
                                : of(Types<__nv_fp8_e5m2, __nv_fp8_e5m2, 1>());
    default:
      return out == DType::kBF16     ? of(Types<float, __nv_bfloat16, 1>())
             : out == DType::kF16    ? of(Types<float, __half, 1>())
             : out == DType::kF8E4M3 ? of(Types<float, __nv_fp8_e4m3, 1>())
             : out == DType::kF8E5M2 ? of(Types<float, __nv_fp8_e5m2, 1>())
                                     : of(Types<float, float, 1>());
  }
}

/// What with_types() takes.
inline constexpr DType kSumTypes[][2] = {
    {DType::kF32, DType::kF32},       {DType::kBF16, DType::kBF16},     {DType::kF16, DType::kF16},
    {DType::kF8E4M3, DType::kF8E4M3}, {DType::kF8E5M2, DType::kF8E5M2}, {DType::kBF16, DType::kF32},
    {DType::kF16, DType::kF32},       {DType::kF8E4M3, DType::kF32},    {DType::kF8E5M2, DType::kF32},
    {DType::kF32, DType::kBF16},      {DType::kF32, DType::kF16},       {DType::kF32, DType::kF8E4M3},
    {DType::kF32, DType::kF8E5M2}};

/// All kernels that `kernel_of(in, out, by_vectors)` knows.
template <class KernelOf>
tandem::cuda::KernelList sum_kernels(KernelOf kernel_of) {
  tandem::cuda::KernelList list;
  for (const auto& [in, out] : kSumTypes) {
    for (const bool by_vectors : {false, true})
      tandem::cuda::add_kernels(list, kernel_of(in, out, by_vectors));
  }
  return list;
}

}  // namespace tandem::coll::cuda
