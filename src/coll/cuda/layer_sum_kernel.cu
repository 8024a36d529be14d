#include "coll/cuda/layer_sum_kernel.hpp"

#include "coll/cuda/meeting.cuh"
#include "device/cuda/elements.cuh"

// Each thread makes kWidth neighbouring elements at a time. It loads them from up to 8 layers before it adds
// the first: a layer may lie in a peer's memory, a few microseconds away.
// Host checks: layer_sum.cpp (what by_vectors needs), coll/checks.cpp (types and sizes).

namespace tandem::coll::cuda {
namespace {

constexpr int kBatch = 8;
static_assert(kMaxAddresses == 2 * kBatch);

using tandem::cuda::add_kernels;
using tandem::cuda::KernelList;
using tandem::cuda::narrow;
using tandem::cuda::widen;

/// kWidth neighbouring elements, loaded and stored as one where 16 bytes hold them.
template <class T, int kWidth>
struct alignas(sizeof(T) * kWidth < 16 ? sizeof(T) * kWidth : 16) Pack {
  T values[kWidth];
};

template <class T, int kWidth>
__device__ float value_of(const Pack<T, kWidth>& pack, int i) {
  return widen(pack.values[i]);
}

/// Whole words: the compiler would give each bf16 a register of its own.
template <>
struct alignas(16) Pack<__nv_bfloat16, 8> {
  std::uint32_t words[4];
};
__device__ float value_of(const Pack<__nv_bfloat16, 8>& pack, int i) {
  const std::uint32_t word = pack.words[i / 2];
  return __uint_as_float(i % 2 == 0 ? word << 16 : word & 0xffff0000U);
}

template <class T, int kWidth>
__device__ Pack<T, kWidth> load(const void* data, std::int64_t at) {
  return *reinterpret_cast<const Pack<T, kWidth>*>(static_cast<const T*>(data) + at);
}

template <class T, int kWidth>
__device__ void store(const float (&values)[kWidth], T* to) {
  Pack<T, kWidth> pack;
#pragma unroll
  for (int i = 0; i < kWidth; ++i) narrow(values[i], pack.values[i]);
  *reinterpret_cast<Pack<T, kWidth>*>(to) = pack;
}
__device__ void store(const float (&values)[8], __nv_bfloat16* to) {
  Pack<__nv_bfloat16, 8> pack;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(values[2 * i], values[2 * i + 1]);
    pack.words[i] = *reinterpret_cast<const std::uint32_t*>(&pair);
  }
  *reinterpret_cast<Pack<__nv_bfloat16, 8>*>(to) = pack;
}

// Dynamic indices into the addresses stay in the constant bank: `sum` is never copied.
template <class In, int kWidth>
__device__ void add_layers(const LayerSum& sum, std::int64_t at, float (&sums)[kWidth]) {
  // The sum of one layer is that layer, also where it is -0.
#pragma unroll
  for (int i = 0; i < kWidth; ++i) sums[i] = -0.0F;
  for (int first = 0; first < sum.num_layers; first += kBatch) {
    const std::int64_t round = first / kMaxAddresses * sum.round_bytes;
    Pack<In, kWidth> packs[kBatch];
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      if (first + i >= sum.num_layers) continue;
      packs[i] =
          load<In, kWidth>(static_cast<const char*>(sum.layers[first % kMaxAddresses + i]) + round, at);
    }
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      if (first + i >= sum.num_layers) continue;
#pragma unroll
      for (int j = 0; j < kWidth; ++j) sums[j] += value_of(packs[i], j);
    }
  }
}

/// Where element `at`, counted row-major, is in out. Units: elements.
__device__ std::int64_t offset_in_out(const LayerSum& sum, std::int64_t at) {
  std::int64_t offset = 0;
  for (int d = sum.num_dims - 1; d > 0; --d) {
    offset += at % sum.sizes[d] * sum.strides[d];
    at /= sum.sizes[d];
  }
  return offset + at * sum.strides[0];
}

template <class In, class Out, int kWidth>
__global__ void __launch_bounds__(kLayerSumThreads)
    layer_sum_kernel(const __grid_constant__ LayerSum sum, const __grid_constant__ Meeting meeting) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kLayerSumThreads * kWidth;
  std::int64_t at = (static_cast<std::int64_t>(blockIdx.x) * kLayerSumThreads + threadIdx.x) * kWidth;
  for (; at < sum.num_elements; at += step) {
    float sums[kWidth];
    add_layers<In, kWidth>(sum, at, sums);
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
  meet_behind(meeting);
}

using Kernel = void (*)(LayerSum, Meeting);

template <class In, class Out>
Kernel kernel_of(bool by_vectors) {
  constexpr int kWidth = 16 / static_cast<int>(sizeof(In));
  return by_vectors ? layer_sum_kernel<In, Out, kWidth> : layer_sum_kernel<In, Out, 1>;
}

/// The type pairs that check_sum lets through: equal, or one of them f32.
Kernel kernel_of(DType in, DType out, bool by_vectors) {
  switch (in) {
    case DType::kBF16:
      return out == DType::kF32 ? kernel_of<__nv_bfloat16, float>(by_vectors)
                                : kernel_of<__nv_bfloat16, __nv_bfloat16>(by_vectors);
    case DType::kF16:
      return out == DType::kF32 ? kernel_of<__half, float>(by_vectors)
                                : kernel_of<__half, __half>(by_vectors);
    default:
      return out == DType::kBF16  ? kernel_of<float, __nv_bfloat16>(by_vectors)
             : out == DType::kF16 ? kernel_of<float, __half>(by_vectors)
                                  : kernel_of<float, float>(by_vectors);
  }
}

}  // namespace

cudaError_t launch_layer_sum(const LayerSum& sum, const Meeting& meeting, int max_blocks,
                             cudaStream_t stream) {
  const std::int64_t width = sum.by_vectors ? vector_elements(sum.in_dtype) : 1;
  const std::int64_t block_elements = kLayerSumThreads * width;
  const std::int64_t num_blocks = (sum.num_elements + block_elements - 1) / block_elements;
  if (num_blocks == 0) return cudaSuccess;
  const auto grid = static_cast<unsigned>(num_blocks < max_blocks ? num_blocks : max_blocks);
  // Not <<<>>>: cudaGetLastError() would also return what an earlier query of this thread left.
  void* arguments[] = {const_cast<LayerSum*>(&sum), const_cast<Meeting*>(&meeting)};
  return cudaLaunchKernel(kernel_of(sum.in_dtype, sum.out_dtype, sum.by_vectors), dim3(grid),
                          dim3(kLayerSumThreads), arguments, 0, stream);
}

KernelList layer_sum_kernels() {
  constexpr DType kTypes[][2] = {{DType::kF32, DType::kF32}, {DType::kBF16, DType::kBF16},
                                 {DType::kF16, DType::kF16}, {DType::kBF16, DType::kF32},
                                 {DType::kF16, DType::kF32}, {DType::kF32, DType::kBF16},
                                 {DType::kF32, DType::kF16}};
  KernelList list;
  for (const auto& [in, out] : kTypes) {
    for (const bool by_vectors : {false, true}) add_kernels(list, kernel_of(in, out, by_vectors));
  }
  return list;
}

}  // namespace tandem::coll::cuda
