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

/// Owner by owner from the one behind this rank on, which is the last one. Shared ones count as this rank's.
struct Tiles {
  int columns;
  int rows;    ///< of an owner, or of all that share tiles
  int owners;  ///< 1 where all share them
  [[nodiscard]] __device__ int count() const { return columns * rows * owners; }
  [[nodiscard]] __device__ OwnedTile tile(const symm::KernelHandle& ranks, int index) const {
    const int of_owner = columns * rows;
    const int owner = owners == 1 ? ranks.rank : (ranks.rank + 1 + index / of_owner) % ranks.world_size;
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
  const int count = tiles.count();
  if (threadIdx.x >= kGroupThreads) {
    PartialPoller<kColumns> poller(exchange, counts);
    for (int i = cta; i < count; i += ctas) {
      poller.await(tiles.tile(exchange.ranks, i));
    }
    return poller.end();
  }
  PartialTiles<kColumns, std::is_same_v<Out, __half>> partials(exchange, counts,
                                                               static_cast<int>(threadIdx.x) / kStripThreads);
  float sums[kSums];
  const auto at = [&](int group, int row, int pair) -> float& { return sums[group * 4 + row * 2 + pair]; };
  const auto make_sums = [&](const OwnedTile& tile) {
    const std::int64_t first_row = exchange.first_of(tile.owner);
    for_sums(exchange, tile, [&](int sum, int row, int column) {
      sums[sum] = widen(static_cast<const In*>(what.product)[(first_row + row) * exchange.n + column]);
    });
  };
  // All that peers wait for goes before this rank waits.
  for (int i = cta; i < count; i += ctas) {
    const OwnedTile tile = tiles.tile(exchange.ranks, i);
    make_sums(tile);
    if (exchange.product != nullptr) {
      const std::int64_t first_row = exchange.first_of(tile.owner);
      for_sums(exchange, tile, [&](int sum, int row, int column) {
        narrow(sums[sum], static_cast<Out*>(exchange.product)[(first_row + row) * exchange.n + column]);
      });
    }
    partials.send(tile, true, at);
  }
  for (int i = cta; i < count; i += ctas) {
    const OwnedTile tile = tiles.tile(exchange.ranks, i);
    if (!partials.is_own(tile)) continue;
    make_sums(tile);
    partials.add(tile, at);
    const StripRows own = exchange.owned_by(tile.owner);
    for_sums(exchange, tile, [&](int sum, int row, int column) {
      if (own.has(row))
        narrow(sums[sum], static_cast<Out*>(what.out)[std::int64_t{row - own.begin} * exchange.n + column]);
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
  const bool shares = exchange.grid.shares_tiles;
  const Tiles tiles{.columns = parts(exchange.n, kColumns),
                    .rows = parts(shares ? exchange.rows : exchange.shard_rows, kTileRows),
                    .owners = shares ? 1 : exchange.ranks.world_size};
  const int count = tiles.columns * tiles.rows * tiles.owners;
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
