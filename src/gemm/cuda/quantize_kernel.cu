#include "gemm/cuda/quantize_kernel.hpp"

#include <tandem/gemm/scaled_mm.hpp>

#include "device/cuda/elements.cuh"
#include "gemm/cuda/row_offset.cuh"

// A team of threads makes one block of elements that share a scale, in three steps: it reads them into
// registers and finds the largest magnitude, makes the scale of it, and writes the quotients. A team is a
// warp, several of which share a block of threads, or, where elements are many, a block of threads. What
// registers do not hold is read a second time.
// Shared memory: the magnitudes of a team's warps (64 bytes).
// Host checks: quantize_rows.cpp (what vectors need), gemm/quantize.cpp (types, sizes, tensors apart).

namespace tandem::gemm::cuda {
namespace {

using tandem::cuda::add_kernels;
using tandem::cuda::KernelList;
using tandem::cuda::Pack;

constexpr int kWarp = 32;
constexpr int kWarpsTogether = 8;  // teams of one warp in a block of threads
constexpr int kMostThreads = 512;
constexpr int kPacks = 8;  // in a thread's registers
constexpr std::int64_t kMaxBlocks = 1 << 20;

/// Elements that share a scale, as a team sees them.
template <class In, class Out>
struct Team {
  const In* input;
  Out* out;
  std::int64_t input_stride;
  std::int64_t out_stride;
  std::int64_t count;
};

template <int kWidth, class In, class Out>
__device__ Pack<In, kWidth> load(const Team<In, Out>& team, std::int64_t at) {
  return *reinterpret_cast<const Pack<In, kWidth>*>(team.input + at * team.input_stride);
}

/// The bits of the larger of two magnitudes, where those that are not finite count as 0. The order of
/// non-negative floats is that of their bits.
template <int kWidth, class In>
__device__ unsigned with_magnitudes(unsigned largest, const Pack<In, kWidth>& pack) {
#pragma unroll
  for (int i = 0; i < kWidth; ++i) {
    const unsigned bits = __float_as_uint(tandem::cuda::widen(pack.values[i])) & 0x7fffffffU;
    largest = max(largest, bits < 0x7f800000U ? bits : 0U);
  }
  return largest;
}

__device__ unsigned largest_of_team(unsigned largest) {
  __shared__ unsigned of_warps[kMostThreads / kWarp];
  constexpr unsigned kAllLanes = 0xffffffffU;
  largest = __reduce_max_sync(kAllLanes, largest);
  if (blockDim.x == kWarp) return largest;
  const unsigned lane = threadIdx.x % kWarp;
  __syncthreads();  // the block before has been read
  if (lane == 0) of_warps[threadIdx.x / kWarp] = largest;
  __syncthreads();
  return __reduce_max_sync(kAllLanes, lane < blockDim.x / kWarp ? of_warps[lane] : 0U);
}

template <int kWidth, class In, class Out>
__device__ void store_quotients(const Team<In, Out>& team, std::int64_t at, const Pack<In, kWidth>& pack,
                                float scale) {
  Pack<Out, kWidth> rounded;
#pragma unroll
  for (int i = 0; i < kWidth; ++i)
    tandem::cuda::narrow_with_one_nan(__fdiv_rn(tandem::cuda::widen(pack.values[i]), scale),
                                      rounded.values[i]);
  *reinterpret_cast<Pack<Out, kWidth>*>(team.out + at * team.out_stride) = rounded;
}

/// Returns the scale.
template <int kWidth, class In, class Out>
__device__ float quantize(const RowQuantization& rows, const Team<In, Out>& team) {
  const std::int64_t step = static_cast<std::int64_t>(blockDim.x) * kWidth;
  const std::int64_t first = static_cast<std::int64_t>(threadIdx.x) * kWidth;
  const std::int64_t first_not_kept = first + kPacks * step;
  Pack<In, kWidth> kept[kPacks];
  unsigned largest = 0;
#pragma unroll
  for (int i = 0; i < kPacks; ++i) {
    if (first + i * step < team.count) kept[i] = load<kWidth>(team, first + i * step);
  }
#pragma unroll
  for (int i = 0; i < kPacks; ++i) {
    if (first + i * step < team.count) largest = with_magnitudes(largest, kept[i]);
  }
  for (std::int64_t at = first_not_kept; at < team.count; at += step)
    largest = with_magnitudes(largest, load<kWidth>(team, at));

  const float amax = __uint_as_float(largest_of_team(largest));
  const float at_least = amax < rows.smallest_amax ? rows.smallest_amax : amax;
  const float scale = amax == 0.0F ? 1.0F : __fdiv_rn(at_least, rows.largest);
#pragma unroll
  for (int i = 0; i < kPacks; ++i) {
    if (first + i * step < team.count) store_quotients(team, first + i * step, kept[i], scale);
  }
  for (std::int64_t at = first_not_kept; at < team.count; at += step)
    store_quotients(team, at, load<kWidth>(team, at), scale);
  return scale;
}

template <class In, class Out, int kWidth>
__global__ void __launch_bounds__(kMostThreads)
    quantize_kernel(const __grid_constant__ RowQuantization rows) {
  const std::int64_t num_scales = rows.num_rows * rows.scales_a_row;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.y;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.y + threadIdx.y; i < num_scales;
       i += step) {
    const std::int64_t row = i / rows.scales_a_row;
    const std::int64_t column = i - row * rows.scales_a_row;
    const std::int64_t first = column * rows.block;
    const std::int64_t rest = rows.k - first;
    const Team<In, Out> team = {
        static_cast<const In*>(rows.input.data) + row_offset(rows, rows.input, row) +
            first * rows.input.col_stride,
        static_cast<Out*>(rows.out.data) + row_offset(rows, rows.out, row) + first * rows.out.col_stride,
        rows.input.col_stride, rows.out.col_stride, rest < rows.block ? rest : rows.block};
    const float scale = quantize<kWidth>(rows, team);
    if (threadIdx.x == 0)
      static_cast<float*>(
          rows.scale.data)[row_offset(rows, rows.scale, row) + column * rows.scale.col_stride] = scale;
  }
}

using Kernel = void (*)(RowQuantization);

template <class In, class Out>
Kernel kernel_of(bool by_vectors) {
  return by_vectors ? quantize_kernel<In, Out, kQuantizedTogether> : quantize_kernel<In, Out, 1>;
}

template <class In>
Kernel kernel_of(DType out, bool by_vectors) {
  return out == DType::kF8E4M3 ? kernel_of<In, __nv_fp8_e4m3>(by_vectors)
                               : kernel_of<In, __nv_fp8_e5m2>(by_vectors);
}

Kernel kernel_of(DType in, DType out, bool by_vectors) {
  switch (in) {
    case DType::kBF16:
      return kernel_of<__nv_bfloat16>(out, by_vectors);
    case DType::kF16:
      return kernel_of<__half>(out, by_vectors);
    default:
      return kernel_of<float>(out, by_vectors);
  }
}

std::int64_t divided_up(std::int64_t value, std::int64_t by) {
  return (value + by - 1) / by;
}

}  // namespace

cudaError_t launch_quantize(const RowQuantization& rows, bool by_vectors, cudaStream_t stream) {
  const std::int64_t width = by_vectors ? kQuantizedTogether : 1;
  const std::int64_t warps = divided_up(rows.block, kWarp * kPacks * width);
  constexpr std::int64_t kMostWarps = kMostThreads / kWarp;
  const std::int64_t warps_a_team = warps < 1 ? 1 : warps < kMostWarps ? warps : kMostWarps;
  const std::int64_t teams = warps_a_team == 1 ? kWarpsTogether : 1;
  const std::int64_t num_blocks = divided_up(rows.num_rows * rows.scales_a_row, teams);
  // Not <<<>>>: cudaGetLastError() would also return what an earlier query of this thread left.
  void* arguments[] = {const_cast<RowQuantization*>(&rows)};
  return cudaLaunchKernel(kernel_of(rows.input_dtype, rows.out_dtype, by_vectors),
                          dim3(static_cast<unsigned>(num_blocks < kMaxBlocks ? num_blocks : kMaxBlocks)),
                          dim3(static_cast<unsigned>(warps_a_team * kWarp), static_cast<unsigned>(teams)),
                          arguments, 0, stream);
}

KernelList quantize_kernels() {
  KernelList list;
  for (const DType in : {DType::kF32, DType::kBF16, DType::kF16}) {
    for (const DType out : {DType::kF8E4M3, DType::kF8E5M2}) {
      for (const bool by_vectors : {false, true}) add_kernels(list, kernel_of(in, out, by_vectors));
    }
  }
  return list;
}

}  // namespace tandem::gemm::cuda
