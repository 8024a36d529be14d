#include "gemm/cuda/scaled_reference_kernel.hpp"

#include <tandem/gemm/scaled_mm.hpp>

#include "gemm/cuda/sums_epilogue.cuh"

// A block of 16 x 16 threads makes one tile of 64 x 64 at a time, each thread 4 rows and 4 columns 16 apart.
// Shared memory: 16 steps of k of the tile's rows of a and columns of b, widened to f32 (8.1 KiB), and where
// these rows begin (0.5 KiB). The types of elements are looked at in each load.
// It is plain on purpose. It is what everything else is compared with, and runs what nothing else takes.

namespace tandem::gemm::cuda {
namespace {

using tandem::cuda::add_kernels;
using tandem::cuda::KernelList;
using tandem::cuda::load_widened;

constexpr int kTile = 64;
constexpr int kDepth = 16;
constexpr int kSide = 16;  // threads along a side of the tile
constexpr int kThreads = kSide * kSide;
constexpr int kEach = kTile / kSide;  // rows, and columns, of a thread
constexpr int kPaddedTile = kTile + 1;
constexpr std::int64_t kMaxBlocks = 1 << 20;
static_assert(kScaleBlock % kDepth == 0, "a step of k lies in one block of it");

using FactorTile = float[kDepth][kPaddedTile];
using Sums = float[kEach][kEach];

struct Place {
  std::int64_t row;
  std::int64_t col;
};

// Elements [outer, outer + kTile) x [k, k + depth) into tile[k][outer]; zero beyond the matrix.
template <class OffsetOf>
__device__ void load_tile(const void* data, DType dtype, std::int64_t rows, std::int64_t k_stride,
                          std::int64_t k, int depth, OffsetOf offset_of, FactorTile& tile) {
  const bool along_k = k_stride == 1;
  for (int i = static_cast<int>(threadIdx.x); i < kTile * kDepth; i += kThreads) {
    const int step = along_k ? i % kDepth : i / kTile;
    const int at = along_k ? i / kDepth : i % kTile;
    const bool is_inside = step < depth && at < rows;
    tile[step][at] = is_inside ? load_widened(data, offset_of(at) + (k + step) * k_stride, dtype) : 0.0F;
  }
}

__device__ void add_products(const FactorTile& a, const FactorTile& b, int depth, int y, int x, Sums& sums) {
  // Not up to kDepth: adding a product of zeros would turn -0 into 0.
  for (int step = 0; step < depth; ++step) {
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
#pragma unroll
      for (int j = 0; j < kEach; ++j)
        sums[i][j] = fmaf(a[step][y * kEach + i], b[step][x + j * kSide], sums[i][j]);
    }
  }
}

// Calls function(i, j, row, column) for this thread's elements inside out.
template <class Function>
__device__ void for_each(const ScaledReferenceProduct& product, const Place& mine, Function function) {
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
#pragma unroll
    for (int j = 0; j < kEach; ++j) {
      const std::int64_t row = mine.row + i;
      const std::int64_t col = mine.col + j * kSide;
      if (row < product.m && col < product.n) function(i, j, row, col);
    }
  }
}

__device__ float block_scale(const ScaledReferenceProduct& product, std::int64_t row, std::int64_t col,
                             std::int64_t block) {
  const RowTensor& a = product.a_scale;
  const BlockScale& b = product.b_scale;
  const float of_a =
      a.data == nullptr
          ? 1.0F
          : static_cast<const float*>(a.data)[row_offset(product.epilogue, a, row) + block * a.col_stride];
  const float of_b =
      b.data == nullptr ? 1.0F : b.data[block * b.block_stride + col / b.columns_each * b.col_stride];
  return __fmul_rn(of_a, of_b);
}

// Takes the sums of a block of k, which begin anew.
__device__ void scale_block(const ScaledReferenceProduct& product, const Place& mine, std::int64_t block,
                            Sums& block_sums, Sums& sums) {
  for_each(product, mine, [&](int i, int j, std::int64_t row, std::int64_t col) {
    const float scaled = __fmul_rn(block_sums[i][j], block_scale(product, row, col, block));
    sums[i][j] = __fadd_rn(sums[i][j], scaled);
    block_sums[i][j] = 0.0F;
  });
}

__device__ void finish(const ScaledReferenceProduct& product, const Place& mine, const Sums& sums) {
  const SumsEpilogue& epilogue = product.epilogue;
  for_each(product, mine, [&](int i, int j, std::int64_t row, std::int64_t col) {
    EpilogueTerms terms = terms_of_column(epilogue, col);
    if (epilogue.a_scale.data != nullptr)
      terms.a_scale =
          static_cast<const float*>(epilogue.a_scale.data)[row_offset(epilogue, epilogue.a_scale, row)];
    if (epilogue.addend.data != nullptr)
      terms.addend = tandem::cuda::load_widened(
          epilogue.addend.data, row_offset(epilogue, epilogue.addend, row) + col * epilogue.addend.col_stride,
          epilogue.addend_dtype);
    tandem::cuda::store_narrowed(finished(epilogue, sums[i][j], terms), epilogue.out.data,
                                 row_offset(epilogue, epilogue.out, row) + col * epilogue.out.col_stride,
                                 epilogue.out_dtype);
  });
}

__device__ void make_tile(const ScaledReferenceProduct& product, const Place& tile) {
  __shared__ FactorTile a_tile;
  __shared__ FactorTile b_tile;
  __shared__ std::int64_t a_rows[kTile];
  const int x = static_cast<int>(threadIdx.x) % kSide;
  const int y = static_cast<int>(threadIdx.x) / kSide;
  const Place mine = {tile.row + y * kEach, tile.col + x};
  if (threadIdx.x < kTile && tile.row + threadIdx.x < product.m)
    a_rows[threadIdx.x] = row_offset(product.epilogue, product.a, tile.row + threadIdx.x);
  __syncthreads();

  Sums block_sums = {};
  Sums sums = {};
  for (std::int64_t k = 0; k < product.k; k += kDepth) {
    const int depth = static_cast<int>(product.k - k < kDepth ? product.k - k : kDepth);
    load_tile(
        product.a.data, product.a_dtype, product.m - tile.row, product.a.col_stride, k, depth,
        [&](int at) { return a_rows[at]; }, a_tile);
    load_tile(
        product.b.data, product.b_dtype, product.n - tile.col, product.b.row_stride, k, depth,
        [&](int at) { return (tile.col + at) * product.b.col_stride; }, b_tile);
    __syncthreads();
    add_products(a_tile, b_tile, depth, y, x, block_sums);
    __syncthreads();
    const bool ends_block = (k + kDepth) % kScaleBlock == 0 || k + kDepth >= product.k;
    if (product.is_scaled_along_k && ends_block)
      scale_block(product, mine, k / kScaleBlock, block_sums, sums);
  }
  if (!product.is_scaled_along_k) {
#pragma unroll
    for (int i = 0; i < kEach * kEach; ++i) sums[i / kEach][i % kEach] = block_sums[i / kEach][i % kEach];
  }
  finish(product, mine, sums);
}

__global__ void __launch_bounds__(kThreads)
    scaled_reference_kernel(const __grid_constant__ ScaledReferenceProduct product) {
  const std::int64_t tiles_across = (product.n + kTile - 1) / kTile;
  const std::int64_t num_tiles = (product.m + kTile - 1) / kTile * tiles_across;
  for (std::int64_t tile = blockIdx.x; tile < num_tiles; tile += gridDim.x)
    make_tile(product, {tile / tiles_across * kTile, tile % tiles_across * kTile});
}

}  // namespace

cudaError_t launch_scaled_reference(const ScaledReferenceProduct& product, cudaStream_t stream) {
  const std::int64_t num_tiles = (product.m + kTile - 1) / kTile * ((product.n + kTile - 1) / kTile);
  if (num_tiles == 0) return cudaSuccess;
  const auto num_blocks = static_cast<unsigned>(num_tiles < kMaxBlocks ? num_tiles : kMaxBlocks);
  // Not <<<>>>: cudaGetLastError() would also return what an earlier query of this thread left.
  void* arguments[] = {const_cast<ScaledReferenceProduct*>(&product)};
  return cudaLaunchKernel(scaled_reference_kernel, dim3(num_blocks), dim3(kThreads), arguments, 0, stream);
}

KernelList scaled_reference_kernels() {
  KernelList list;
  add_kernels(list, scaled_reference_kernel);
  return list;
}

}  // namespace tandem::gemm::cuda
