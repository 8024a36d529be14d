#include "gemm/cuda/reference_kernel.hpp"

#include "device/cuda/elements.cuh"

// A block of 16 x 16 threads makes one tile of 64 x 64 at a time, each thread 4 rows and 4 columns 16 apart.
// Shared memory: 16 steps of k of the tile's rows of a and columns of b, widened to f32 (8.1 KiB).
// Any strides: what lies next to each other in memory is loaded by neighbouring threads, whichever way it is.
// It is plain on purpose. It is what everything else is compared with, and runs what nothing else takes.

namespace tandem::gemm::cuda {
namespace {

using tandem::cuda::add_kernels;
using tandem::cuda::KernelList;
using tandem::cuda::narrow;
using tandem::cuda::widen;

constexpr int kTile = 64;
constexpr int kDepth = 16;
constexpr int kSide = 16;  // threads along a side of the tile
constexpr int kThreads = kSide * kSide;
constexpr int kEach = kTile / kSide;  // rows, and columns, of a thread
constexpr int kPaddedTile = kTile + 1;
constexpr std::int64_t kMaxBlocks = 1 << 20;

// Rows of a, or columns of b: `outer` is what the tile runs along.
template <class T>
struct Factor {
  const T* data;
  std::int64_t outer_stride;
  std::int64_t k_stride;
  std::int64_t outer_size;
};

// Elements [outer, outer + kTile) x [k, k + depth) into tile[k][outer]; zero beyond the matrix.
template <class T>
__device__ void load_tile(const Factor<T>& factor, std::int64_t outer, std::int64_t k, int depth,
                          float (&tile)[kDepth][kPaddedTile]) {
  const bool along_k = factor.k_stride == 1;
  for (int i = static_cast<int>(threadIdx.x); i < kTile * kDepth; i += kThreads) {
    const int step = along_k ? i % kDepth : i / kTile;
    const int at = along_k ? i / kDepth : i % kTile;
    float value = 0.0F;
    if (step < depth && outer + at < factor.outer_size) {
      value = widen(factor.data[(outer + at) * factor.outer_stride + (k + step) * factor.k_stride]);
    }
    tile[step][at] = value;
  }
}

template <class In, class Out>
struct Tile {
  const ReferenceProduct& product;
  std::int64_t row;  // of this thread's first element
  std::int64_t col;

  // Calls function(sum, pointer to the element, its row and column) for this thread's elements inside out.
  template <class Function>
  __device__ void for_each(float (&sums)[kEach][kEach], Function function) const {
    auto* out = static_cast<Out*>(product.out.data);
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
#pragma unroll
      for (int j = 0; j < kEach; ++j) {
        const std::int64_t r = row + i;
        const std::int64_t c = col + j * kSide;
        if (r >= product.m || c >= product.n) continue;
        function(sums[i][j], out + r * product.out.row_stride + c * product.out.col_stride, r, c);
      }
    }
  }
};

template <class In, class Out>
__device__ void make_tile(const ReferenceProduct& product, std::int64_t tile_row, std::int64_t tile_col) {
  __shared__ float a_tile[kDepth][kPaddedTile];
  __shared__ float b_tile[kDepth][kPaddedTile];
  const Factor<In> a = {static_cast<const In*>(product.a.data), product.a.row_stride, product.a.col_stride,
                        product.m};
  const Factor<In> b = {static_cast<const In*>(product.b.data), product.b.col_stride, product.b.row_stride,
                        product.n};
  const int x = static_cast<int>(threadIdx.x) % kSide;
  const int y = static_cast<int>(threadIdx.x) / kSide;
  const Tile<In, Out> mine = {product, tile_row + y * kEach, tile_col + x};

  float sums[kEach][kEach] = {};
  if (product.accumulate) {
    mine.for_each(sums, [](float& sum, const Out* at, std::int64_t, std::int64_t) { sum = widen(*at); });
  }
  for (std::int64_t k = 0; k < product.k; k += kDepth) {
    const int depth = static_cast<int>(product.k - k < kDepth ? product.k - k : kDepth);
    load_tile(a, tile_row, k, depth, a_tile);
    load_tile(b, tile_col, k, depth, b_tile);
    __syncthreads();
    // Not up to kDepth: adding a product of zeros would turn -0 into 0.
    for (int step = 0; step < depth; ++step) {
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
#pragma unroll
        for (int j = 0; j < kEach; ++j) {
          sums[i][j] = fmaf(a_tile[step][y * kEach + i], b_tile[step][x + j * kSide], sums[i][j]);
        }
      }
    }
    __syncthreads();
  }
  const auto* bias = static_cast<const Out*>(product.bias);
  const StridedMatrix& added = product.addend;
  const auto* addend = static_cast<const Out*>(added.data);
  mine.for_each(sums, [&](float sum, Out* at, std::int64_t r, std::int64_t c) {
    if (bias != nullptr) sum += widen(bias[c * product.bias_stride]);
    if (addend != nullptr) sum += widen(addend[r * added.row_stride + c * added.col_stride]);
    narrow(sum, *at);
  });
}

template <class In, class Out>
__global__ void __launch_bounds__(kThreads)
    reference_kernel(const __grid_constant__ ReferenceProduct product) {
  const std::int64_t tiles_across = (product.n + kTile - 1) / kTile;
  const std::int64_t num_tiles = (product.m + kTile - 1) / kTile * tiles_across;
  for (std::int64_t tile = blockIdx.x; tile < num_tiles; tile += gridDim.x) {
    make_tile<In, Out>(product, tile / tiles_across * kTile, tile % tiles_across * kTile);
  }
}

using Kernel = void (*)(ReferenceProduct);

/// The type pairs that gemm::problem_of lets through.
Kernel kernel_of(DType in, DType out) {
  const bool wide_out = out == DType::kF32;
  switch (in) {
    case DType::kBF16:
      return wide_out ? reference_kernel<__nv_bfloat16, float>
                      : reference_kernel<__nv_bfloat16, __nv_bfloat16>;
    case DType::kF16:
      return wide_out ? reference_kernel<__half, float> : reference_kernel<__half, __half>;
    default:
      return reference_kernel<float, float>;
  }
}

}  // namespace

cudaError_t launch_reference(const ReferenceProduct& product, cudaStream_t stream) {
  const std::int64_t num_tiles = (product.m + kTile - 1) / kTile * ((product.n + kTile - 1) / kTile);
  if (num_tiles == 0) return cudaSuccess;
  const auto num_blocks = static_cast<unsigned>(num_tiles < kMaxBlocks ? num_tiles : kMaxBlocks);
  // Not <<<>>>: cudaGetLastError() would also return what an earlier query of this thread left.
  void* arguments[] = {const_cast<ReferenceProduct*>(&product)};
  return cudaLaunchKernel(kernel_of(product.in_dtype, product.out_dtype), dim3(num_blocks), dim3(kThreads),
                          arguments, 0, stream);
}

KernelList reference_kernels() {
  KernelList list;
  for (const DType in : {DType::kF32, DType::kBF16, DType::kF16}) {
    add_kernels(list, kernel_of(in, in));
    if (in != DType::kF32) add_kernels(list, kernel_of(in, DType::kF32));
  }
  return list;
}

}  // namespace tandem::gemm::cuda
