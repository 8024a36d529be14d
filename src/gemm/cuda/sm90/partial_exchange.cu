#include "gemm/cuda/sm90/partial_exchange.cuh"

#include <algorithm>
#include <type_traits>

#include "device/cuda/elements.cuh"
#include "gemm/cuda/sm90/sum_rows.cuh"

namespace tandem::gemm::cuda {
namespace {

using tandem::cuda::narrow;
using tandem::cuda::widen;

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

template <class In, class Out>
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
  PartialTiles<kColumns, std::is_same_v<Out, __half>> partials(exchange, counts,
                                                               static_cast<int>(threadIdx.x) / kStripThreads,
                                                               static_cast<int>(threadIdx.x) % kStripThreads);
  for (int i = cta; i < count; i += ctas) {
    const OwnedTile tile = tiles.tile(exchange.ranks, i);
    const std::int64_t first_row = std::int64_t{tile.owner} * exchange.shard_rows;
    float sums[kSums] = {};
    for_sums(exchange, tile, [&](int at, int row, int column) {
      sums[at] = widen(static_cast<const In*>(what.product)[(first_row + row) * exchange.n + column]);
    });
    if (exchange.product != nullptr) {
      for_sums(exchange, tile, [&](int at, int row, int column) {
        narrow(sums[at], static_cast<Out*>(exchange.product)[(first_row + row) * exchange.n + column]);
      });
    }
    const auto at = [&](int group, int row, int pair) -> float& { return sums[group * 4 + row * 2 + pair]; };
    if (!partials.is_own(tile)) {
      partials.send(tile, true, at);
      continue;
    }
    partials.add(tile, at);
    for_sums(exchange, tile, [&](int sum, int row, int column) {
      narrow(sums[sum], static_cast<Out*>(what.out)[std::int64_t{row} * exchange.n + column]);
    });
  }
  partials.end();
}

using Kernel = void (*)(GivePartialsLaunch, Tiles);
/// By the type of the product, out's or f32, and that of out, bf16 or f16.
constexpr Kernel kKernels[2][2] = {
    {give_partials<__nv_bfloat16, __nv_bfloat16>, give_partials<__half, __half>},
    {give_partials<float, __nv_bfloat16>, give_partials<float, __half>}};

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
  for (const auto& of_type : kKernels) tandem::cuda::add_kernels(list, of_type[0], of_type[1]);
  return list;
}

}  // namespace tandem::gemm::cuda
