#include "gemm/cuda/round_kernel.hpp"

#include "device/cuda/elements.cuh"

// A block is 32 threads along the columns and 8 along the rows. A thread keeps its columns, and their bias in
// registers, and goes down the rows. It reads an element before it writes it, and nobody else does either:
// product and out may be the same memory.
// Host checks: rounding.cpp (what by_vectors needs), gemm/mm.cpp (types, sizes, elements of out apart).

namespace tandem::gemm::cuda {
namespace {

using tandem::cuda::add_kernels;
using tandem::cuda::KernelList;
using tandem::cuda::narrow;
using tandem::cuda::widen;

constexpr int kThreadsAcross = 32;
constexpr int kThreadsDown = 8;
constexpr int kThreads = kThreadsAcross * kThreadsDown;
constexpr std::int64_t kMaxBlocks = 4096;

/// kWidth neighbouring elements, loaded and stored as one where 16 bytes hold them.
template <class T, int kWidth>
struct alignas(sizeof(T) * kWidth < 16 ? sizeof(T) * kWidth : 16) Pack {
  T values[kWidth];
};

template <class Out, int kWidth>
__global__ void __launch_bounds__(kThreads) round_kernel(const __grid_constant__ Rounding rounding) {
  const std::int64_t col = (static_cast<std::int64_t>(blockIdx.x) * kThreadsAcross + threadIdx.x) * kWidth;
  if (col >= rounding.n) return;
  float bias[kWidth];
#pragma unroll
  for (int i = 0; i < kWidth; ++i) {
    bias[i] = widen(static_cast<const Out*>(rounding.bias)[(col + i) * rounding.bias_stride]);
  }
  const float* product = rounding.product + col;
  Out* out = static_cast<Out*>(rounding.out.data) + col * rounding.out.col_stride;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.y) * kThreadsDown;
  std::int64_t row = static_cast<std::int64_t>(blockIdx.y) * kThreadsDown + threadIdx.y;
  for (; row < rounding.m; row += step) {
    const auto sums = *reinterpret_cast<const Pack<float, kWidth>*>(product + row * rounding.product_stride);
    Pack<Out, kWidth> rounded;
#pragma unroll
    for (int i = 0; i < kWidth; ++i) narrow(sums.values[i] + bias[i], rounded.values[i]);
    *reinterpret_cast<Pack<Out, kWidth>*>(out + row * rounding.out.row_stride) = rounded;
  }
}

using Kernel = void (*)(Rounding);

template <class Out>
Kernel kernel_of(bool by_vectors) {
  return by_vectors ? round_kernel<Out, 16 / static_cast<int>(sizeof(Out))> : round_kernel<Out, 1>;
}

Kernel kernel_of(DType out, bool by_vectors) {
  switch (out) {
    case DType::kBF16:
      return kernel_of<__nv_bfloat16>(by_vectors);
    case DType::kF16:
      return kernel_of<__half>(by_vectors);
    default:
      return kernel_of<float>(by_vectors);
  }
}

std::int64_t divided_up(std::int64_t value, std::int64_t by) {
  return (value + by - 1) / by;
}

}  // namespace

cudaError_t launch_round(const Rounding& rounding, cudaStream_t stream) {
  if (rounding.m == 0 || rounding.n == 0) return cudaSuccess;
  const std::int64_t width = rounding.by_vectors ? round_vector_elements(rounding.out_dtype) : 1;
  const std::int64_t across = divided_up(rounding.n, width * kThreadsAcross);
  const std::int64_t rows = divided_up(rounding.m, kThreadsDown);
  const std::int64_t most_rows = kMaxBlocks / across + 1;
  const std::int64_t down = rows < most_rows ? rows : most_rows;
  // Not <<<>>>: cudaGetLastError() would also return what an earlier query of this thread left.
  void* arguments[] = {const_cast<Rounding*>(&rounding)};
  return cudaLaunchKernel(kernel_of(rounding.out_dtype, rounding.by_vectors),
                          dim3(static_cast<unsigned>(across), static_cast<unsigned>(down)),
                          dim3(kThreadsAcross, kThreadsDown), arguments, 0, stream);
}

KernelList round_kernels() {
  KernelList list;
  for (const DType out : {DType::kF32, DType::kBF16, DType::kF16}) {
    for (const bool by_vectors : {false, true}) add_kernels(list, kernel_of(out, by_vectors));
  }
  return list;
}

}  // namespace tandem::gemm::cuda
