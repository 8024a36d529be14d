#include "gemm/cuda/sm90/partial_exchange.cuh"

#include <algorithm>

#include "gemm/cuda/sm90/sum_rows.cuh"

namespace tandem::gemm::cuda {
namespace {

constexpr int kTileRows = 128;
constexpr int kColumns = 64;
constexpr int kGroupThreads = 2 * kStripThreads;
constexpr int kThreads = kGroupThreads + 32;
constexpr int kParties = 3;
/// Two of each of a thread's groups of eight columns, in two rows.
constexpr int kSums = kColumns / 8 * 4;

/// The tiles of owner `step` places behind this rank, which is the last one.
struct Tiles {
  int columns;
  int rows;  ///< of an owner
  [[nodiscard]] __device__ int count(int world) const { return columns * rows * world; }
  [[nodiscard]] __device__ OwnedTile tile(const symm::KernelHandle& ranks, int index) const {
    const int of_owner = columns * rows;
    const int owner = (ranks.rank + 1 + index / of_owner) % ranks.world_size;
    return {owner, index % of_owner / columns, index % columns};
  }
};

template <bool kIsF32, bool kIsHalf>
__device__ float element(const void* data, std::int64_t at) {
  if constexpr (kIsF32) return static_cast<const float*>(data)[at];
  if constexpr (kIsHalf) return __half2float(static_cast<const __half*>(data)[at]);
  return __bfloat162float(static_cast<const __nv_bfloat16*>(data)[at]);
}
template <bool kIsHalf>
__device__ void store_element(void* data, std::int64_t at, float value) {
  if constexpr (kIsHalf) {
    static_cast<__half*>(data)[at] = __float2half_rn(value);
  } else {
    static_cast<__nv_bfloat16*>(data)[at] = __float2bfloat16_rn(value);
  }
}

/// f(place of the sum, row of the owner's, column) for what this thread has inside of a tile.
template <class F>
__device__ void for_sums(const PartialExchange& exchange, const OwnedTile& tile, F f) {
  const int row = tile.row * kTileRows + first_row_of(static_cast<int>(threadIdx.x));
  const int column = tile.column * kColumns + static_cast<int>(threadIdx.x) % 4 * 2;
#pragma unroll
  for (int i = 0; i < kSums; ++i) {
    const int at_row = row + i / 2 % 2 * 8;
    const int at_column = column + i / 4 * 8 + i % 2;
    if (at_row < exchange.rows_of(tile.owner) && at_column < exchange.n) f(i, at_row, at_column);
  }
}

template <bool kIsF32, bool kIsHalf>
__global__ void __launch_bounds__(kThreads, 1)
    give_partials(const __grid_constant__ GivePartialsLaunch what, const Tiles tiles) {
  const PartialExchange& exchange = what.exchange;
  __shared__ PartialCounts counts;
  if (threadIdx.x == 0) begin_exchange(exchange, counts);
  __syncthreads();
  const auto ctas = static_cast<int>(gridDim.x);
  const auto cta = static_cast<int>(blockIdx.x);
  const int count = tiles.count(exchange.ranks.world_size);
  if (threadIdx.x >= kGroupThreads) {
    PartialPoller<kColumns> poller(exchange, counts);
    for (int i = cta; i < count; i += ctas) {
      const OwnedTile tile = tiles.tile(exchange.ranks, i);
      if (tile.owner == exchange.ranks.rank) poller.await(tile);
    }
    return poller.end();
  }
  PartialTiles<kColumns, kIsHalf> partials(exchange, counts, static_cast<int>(threadIdx.x) / kStripThreads,
                                           static_cast<int>(threadIdx.x) % kStripThreads);
  for (int i = cta; i < count; i += ctas) {
    const OwnedTile tile = tiles.tile(exchange.ranks, i);
    const std::int64_t first_row = std::int64_t{tile.owner} * exchange.shard_rows;
    float sums[kSums] = {};
    for_sums(exchange, tile, [&](int at, int row, int column) {
      sums[at] = element<kIsF32, kIsHalf>(what.product, (first_row + row) * exchange.n + column);
    });
    if (exchange.product != nullptr) {
      for_sums(exchange, tile, [&](int at, int row, int column) {
        store_element<kIsHalf>(exchange.product, (first_row + row) * exchange.n + column, sums[at]);
      });
    }
    const auto at = [&](int group, int row, int pair) -> float& { return sums[group * 4 + row * 2 + pair]; };
    if (!partials.is_own(tile)) {
      partials.send(tile, true, at);
      continue;
    }
    partials.add(tile, at);
    for_sums(exchange, tile, [&](int sum, int row, int column) {
      store_element<kIsHalf>(what.out, std::int64_t{row} * exchange.n + column, sums[sum]);
    });
  }
  partials.end();
}

using Kernel = void (*)(GivePartialsLaunch, Tiles);
constexpr Kernel kKernels[2][2] = {{give_partials<false, false>, give_partials<false, true>},
                                   {give_partials<true, false>, give_partials<true, true>}};

}  // namespace

cudaError_t launch_give_partials(GivePartialsLaunch what, cudaStream_t stream) {
  PartialExchange& exchange = what.exchange;
  const auto parts = [](int extent, int part) { return (extent + part - 1) / part; };
  const Tiles tiles{.columns = parts(exchange.n, kColumns), .rows = parts(exchange.shard_rows, kTileRows)};
  const int count = tiles.columns * tiles.rows * exchange.ranks.world_size;
  const int ctas = std::min(what.most_ctas, count);
  exchange.parties = ctas * kParties;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(ctas));
  config.blockDim = dim3(kThreads);
  config.stream = stream;
  return cudaLaunchKernelEx(&config, kKernels[what.is_f32 ? 1 : 0][what.is_half ? 1 : 0], what, tiles);
}

tandem::cuda::KernelList give_partials_kernels() {
  tandem::cuda::KernelList list;
  for (const auto& of_type : kKernels) {
    for (const Kernel kernel : of_type) list.push_back(reinterpret_cast<const void*>(kernel));
  }
  return list;
}

}  // namespace tandem::gemm::cuda
