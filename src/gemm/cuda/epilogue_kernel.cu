#include "gemm/cuda/epilogue_kernel.hpp"

#include "gemm/cuda/sums_epilogue.cuh"

// A block is 32 threads along the columns and 8 along the rows. A thread keeps its columns' terms in
// registers and goes down the rows. It reads an element of the sums and of the addend before it writes that
// of out, and nobody else does either: they may be the same memory.
// Host checks: epilogue_pass.cpp (what by_vectors needs), gemm/mm.cpp and gemm/scaled_mm.cpp (types, sizes,
// elements of out apart).

namespace tandem::gemm::cuda {
namespace {

using tandem::cuda::add_kernels;
using tandem::cuda::KernelList;
using tandem::cuda::Pack;

constexpr int kThreadsAcross = 32;
constexpr int kThreadsDown = 8;
constexpr int kThreads = kThreadsAcross * kThreadsDown;
constexpr std::int64_t kMaxBlocks = 4096;

template <int kWidth, class T = float>
__device__ Pack<T, kWidth> load(const void* data, std::int64_t at) {
  return *reinterpret_cast<const Pack<T, kWidth>*>(static_cast<const T*>(data) + at);
}

// The addend is f32 or of out's type.
template <class Out, int kWidth>
__device__ Pack<float, kWidth> load_addend(const SumsEpilogue& epilogue, std::int64_t row, std::int64_t col) {
  const std::int64_t at = row_offset(epilogue, epilogue.addend, row) + col * epilogue.addend.col_stride;
  if (epilogue.addend_dtype == DType::kF32) return load<kWidth>(epilogue.addend.data, at);
  const Pack<Out, kWidth> narrow = load<kWidth, Out>(epilogue.addend.data, at);
  Pack<float, kWidth> addend;
#pragma unroll
  for (int i = 0; i < kWidth; ++i) addend.values[i] = tandem::cuda::widen(narrow.values[i]);
  return addend;
}

template <class Out, int kWidth>
__global__ void __launch_bounds__(kThreads) epilogue_kernel(const __grid_constant__ EpiloguePass pass) {
  const SumsEpilogue& epilogue = pass.epilogue;
  const std::int64_t col = (static_cast<std::int64_t>(blockIdx.x) * kThreadsAcross + threadIdx.x) * kWidth;
  if (col >= pass.n) return;
  EpilogueTerms terms[kWidth];
#pragma unroll
  for (int i = 0; i < kWidth; ++i) terms[i] = terms_of_column(epilogue, col + i);
  Out* const out = static_cast<Out*>(epilogue.out.data) + col * epilogue.out.col_stride;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.y) * kThreadsDown;
  std::int64_t row = static_cast<std::int64_t>(blockIdx.y) * kThreadsDown + threadIdx.y;
  for (; row < pass.m; row += step) {
    const Pack<float, kWidth> sums = load<kWidth>(pass.sums, row * pass.sums_stride + col);
    float a_scale = 1.0F;
    if (epilogue.a_scale.data != nullptr)
      a_scale = load<1>(epilogue.a_scale.data, row_offset(epilogue, epilogue.a_scale, row)).values[0];
    Pack<float, kWidth> addend = {};
    if (epilogue.addend.data != nullptr) addend = load_addend<Out, kWidth>(epilogue, row, col);
    Pack<Out, kWidth> rounded;
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      terms[i].a_scale = a_scale;
      terms[i].addend = addend.values[i];
      tandem::cuda::narrow_with_one_nan(finished(epilogue, sums.values[i], terms[i]), rounded.values[i]);
    }
    *reinterpret_cast<Pack<Out, kWidth>*>(out + row_offset(epilogue, epilogue.out, row)) = rounded;
  }
}

using Kernel = void (*)(EpiloguePass);

template <class Out>
Kernel kernel_of(bool by_vectors) {
  return by_vectors ? epilogue_kernel < Out, sizeof(Out) == 4 ? 4 : 8 > : epilogue_kernel<Out, 1>;
}

Kernel kernel_of(DType out, bool by_vectors) {
  switch (out) {
    case DType::kBF16:
      return kernel_of<__nv_bfloat16>(by_vectors);
    case DType::kF16:
      return kernel_of<__half>(by_vectors);
    case DType::kF8E4M3:
      return kernel_of<__nv_fp8_e4m3>(by_vectors);
    case DType::kF8E5M2:
      return kernel_of<__nv_fp8_e5m2>(by_vectors);
    default:
      return kernel_of<float>(by_vectors);
  }
}

std::int64_t divided_up(std::int64_t value, std::int64_t by) {
  return (value + by - 1) / by;
}

}  // namespace

cudaError_t launch_epilogue(const EpiloguePass& pass, cudaStream_t stream) {
  if (pass.m == 0 || pass.n == 0) return cudaSuccess;
  const DType out_dtype = pass.epilogue.out_dtype;
  const std::int64_t width = pass.by_vectors ? epilogue_vector_elements(out_dtype) : 1;
  const std::int64_t across = divided_up(pass.n, width * kThreadsAcross);
  const std::int64_t rows = divided_up(pass.m, kThreadsDown);
  const std::int64_t most_rows = kMaxBlocks / across + 1;
  const std::int64_t down = rows < most_rows ? rows : most_rows;
  // Not <<<>>>: cudaGetLastError() would also return what an earlier query of this thread left.
  void* arguments[] = {const_cast<EpiloguePass*>(&pass)};
  return cudaLaunchKernel(kernel_of(out_dtype, pass.by_vectors),
                          dim3(static_cast<unsigned>(across), static_cast<unsigned>(down)),
                          dim3(kThreadsAcross, kThreadsDown), arguments, 0, stream);
}

KernelList epilogue_kernels() {
  KernelList list;
  for (const DType out : {DType::kF32, DType::kBF16, DType::kF16, DType::kF8E4M3, DType::kF8E5M2}) {
    for (const bool by_vectors : {false, true}) add_kernels(list, kernel_of(out, by_vectors));
  }
  return list;
}

}  // namespace tandem::gemm::cuda
