#pragma once

// The twin of gemm/cuda/sm90/async_input_instance.cuh for the simulated GPU, found before it by
// instance_list.cuh: the same launches, tiles, waits and pieces, and a loop in place of tensor instructions,
// which no host has. Thread 0 of a CTA loads and multiplies; warps 1 and 2 exchange pieces, as there.

#include <cuda_fp8.h>

#include <algorithm>
#include <iterator>

#include "device/cuda/elements.cuh"
#include "gemm/cuda/sm90/async_input_signals.cuh"
#include "gemm/cuda/sm90/partial_exchange.cuh"
#include "gemm/cuda/sm90/piece_exchange.cuh"
#include "gemm/cuda/sm90/product_grid.hpp"
#include "gemm/cuda/sm90/sum_rows.cuh"

namespace cutlass {

using bfloat16_t = __nv_bfloat16;
using half_t = __half;
using float_e4m3_t = __nv_fp8_e4m3;

}  // namespace cutlass

namespace tandem::gemm::cuda {

namespace in_loops {

inline constexpr int kMostColumns = 256;
/// Elements of a step of k.
template <class E>
inline constexpr int kDepth = PieceGrid::kStepBytes / static_cast<int>(sizeof(E));

struct Product {
  AsyncInputLaunch launch;
  ProductGrid grid;
  Tiling tiling;
  bool b_is_column_major = false;
  SumsKind sums = SumsKind::kPlain;
};

/// The rows of a tile, of a or of out: those inside its batch.
struct TileRows {
  std::int64_t first = 0;  ///< of the tensor
  int count = 0;
};
inline TileRows rows_of(int tile, int batch, int batch_rows) {
  const int first = tile * PieceGrid::kTileRows;
  return {std::int64_t{batch} * batch_rows + first, min(PieceGrid::kTileRows, batch_rows - first)};
}

/// Where a tile's rows of a are.
template <class E>
struct Source {
  const E* rows;
  int count;
  int chunk;
  bool is_complete;
  std::int64_t first_row;  ///< among the rows that arrive, or the complete ones
};
template <class E>
Source<E> source_of(const Product& product, const TilePlace& place) {
  const AsyncInputLaunch& launch = product.launch;
  const auto& grid = product.grid;
  const tandem::symm::ChunkSignals signals = signals_of(launch);
  if (launch.partials.is_any()) {
    const std::int64_t first =
        std::int64_t{place.batch} * launch.partials.batch_rows() + place.row * PieceGrid::kTileRows;
    const auto rows = std::min<std::int64_t>(PieceGrid::kTileRows, launch.rows - first);
    return {static_cast<const E*>(launch.complete) + first * launch.k, static_cast<int>(rows), 0, true,
            first};
  }
  const int per_signal = grid.tiles_per_signal;
  const int chunk = per_signal == 0 ? place.batch : place.row / per_signal;
  const bool is_complete = signals.is_complete(chunk);
  const int before = is_complete ? signals.complete_begin : 0;
  const int tile = per_signal == 0 ? place.row : place.row - before * per_signal;
  const int batch = per_signal == 0 ? place.batch - before : place.batch;
  const TileRows rows = rows_of(tile, batch, is_complete ? grid.complete_rows : grid.batch_rows);
  return {static_cast<const E*>(is_complete ? launch.complete : launch.a) + rows.first * launch.k, rows.count,
          chunk, is_complete, rows.first};
}

using Sums = float[PieceGrid::kTileRows][kMostColumns];

// Shared memory of whichever kernel runs: the host thread's own, so it must not be there once a kernel.
inline Sums& sums_of_tile() {
  __shared__ Sums sums;
  return sums;
}
inline Sums& sums_of_step() {
  __shared__ Sums sums;
  return sums;
}
inline SenderStages& stages_of_sender() {
  __shared__ SenderStages stages;
  return stages;
}
inline PieceStage<kMostPiecesTogether>& stage_of_warp() {
  __shared__ PieceStage<kMostPiecesTogether> stage;
  return stage;
}

/// Adds the part of [k, k_end) to the sums of a tile. Most of the time goes here, and sanitizers would make
/// it several times as long.
template <class E>
__attribute__((no_sanitize_address, no_sanitize_undefined)) void multiply(const Product& product,
                                                                          const Source<E>& a,
                                                                          int first_column, int columns,
                                                                          std::int64_t k, std::int64_t k_end,
                                                                          Sums& sums) {
  const auto* const b = static_cast<const E*>(product.launch.b);
  const std::int64_t n = product.launch.n;
  const std::int64_t depth = product.launch.k;
  __shared__ float b_step[kDepth<E>][kMostColumns];
  for (std::int64_t i = k; i < k_end; ++i) {
    for (int c = 0; c < columns; ++c) {
      const std::int64_t column = first_column + c;
      b_step[i - k][c] =
          tandem::cuda::widen(product.b_is_column_major ? b[column * depth + i] : b[i * n + column]);
    }
  }
  for (int r = 0; r < a.count; ++r) {
    for (std::int64_t i = k; i < k_end; ++i) {
      const float value = tandem::cuda::widen(a.rows[r * depth + i]);
      for (int c = 0; c < columns; ++c) sums[r][c] += value * b_step[i - k][c];
    }
  }
}

/// See SumScales. Rows of sums are those of `a`.
struct Scaling {
  const SumScales& scales;
  RowScales rows;
  std::int64_t first_row;
  int first_column;

  template <class E>
  Scaling(const Product& product, const Source<E>& a, int column)
      : scales(product.launch.scales),
        rows(a.is_complete ? scales.complete_rows : scales.rows),
        first_row(a.first_row),
        first_column(column) {}

  [[nodiscard]] float row(int r, std::int64_t block) const {
    return rows.data == nullptr ? 1.0F
                                : rows.data[(first_row + r) * rows.row_stride + block * rows.block_stride];
  }
  /// Adds `part`, of block `block` of k, to `sums`, and clears it.
  void promote(std::int64_t block, int count, int columns, Sums& part, Sums& sums) const {
    const float b =
        !scales.along_k || scales.columns == nullptr
            ? 1.0F
            : scales.columns[first_column / 128 * scales.column_stride + block * scales.block_stride];
    for (int r = 0; r < count; ++r) {
      const float scale = scales.along_k ? row(r, block) * b : 1.0F;
      for (int c = 0; c < columns; ++c) {
        sums[r][c] += part[r][c] * scale;
        part[r][c] = 0;
      }
    }
  }
  [[nodiscard]] float scaled(int r, int c, float sum) const {
    if (scales.along_k) return sum;
    sum *= row(r, 0);
    return scales.columns == nullptr ? sum : sum * scales.columns[(first_column + c) * scales.column_stride];
  }
};

inline float widened(const void* data, DType dtype, std::int64_t at) {
  if (dtype == DType::kF32) return static_cast<const float*>(data)[at];
  if (dtype == DType::kF16) return tandem::cuda::widen(static_cast<const __half*>(data)[at]);
  return tandem::cuda::widen(static_cast<const __nv_bfloat16*>(data)[at]);
}
/// `at`: in out, and so in the addend.
inline float finished(const SumEpilogue& what, float sum, std::int64_t column, std::int64_t at) {
  if (what.bias.data != nullptr) sum += bias_at(what.bias, static_cast<int>(column));
  if (what.result != nullptr) sum *= *what.result;
  return what.addend == nullptr ? sum : sum + widened(what.addend, what.addend_dtype, at);
}

/// Calls work(place) for the tiles of this CTA, in their order.
template <class Work>
void for_tiles(const Product& product, Work work) {
  const int cluster_columns = product.tiling.cluster_columns;
  const auto [row, y, unused] = blockIdx;
  for (int i = static_cast<int>(y) / cluster_columns; i < product.grid.order.num_clusters();
       i += product.grid.num_clusters) {
    const Tile tile =
        product.grid.order.tile(i, static_cast<int>(row), static_cast<int>(y) % cluster_columns);
    work(place_of(tile, product.grid.tiles_per_chunk, product.grid.tiles_per_batch));
  }
}

/// How many they are.
inline int num_tiles(const Product& product) {
  int count = 0;
  for_tiles(product, [&](const TilePlace&) { ++count; });
  return count;
}

/// By thread 0: multiplies its CTA's tiles, and calls finish(place, columns, sums) behind each.
template <class E, class Finish>
void multiply_tiles(const Product& product, std::uint32_t& announced, Sums& sums, Finish finish) {
  const AsyncInputLaunch& launch = product.launch;
  const tandem::symm::ChunkSignals signals = signals_of(launch);
  Sums& part = sums_of_step();
  std::uint32_t before = 0;
  bool gave_up = false;
  for_tiles(product, [&](const TilePlace& place) {
    const auto a = source_of<E>(product, place);
    const bool in_pieces = !a.is_complete && launch.pieces.has(a.chunk);
    const int first_column = place.column * product.tiling.tile_columns;
    const int columns = min(product.tiling.tile_columns, static_cast<int>(launch.n) - first_column);
    for (auto& row : sums) std::fill(std::begin(row), std::end(row), 0.0F);
    if (!a.is_complete && !in_pieces && !gave_up) gave_up = !tandem::symm::await_chunk(signals, a.chunk);
    std::uint32_t step = 0;
    const bool promotes = product.sums == SumsKind::kPromoted;
    const Scaling scaling(product, a, first_column);
    if (promotes)
      for (auto& row : part) std::fill(std::begin(row), std::end(row), 0.0F);
    if (in_pieces && launch.scales.rows_arrive && !gave_up)
      gave_up = !tandem::symm::await_chunk(signals, a.chunk);
    for (std::int64_t k = 0; k < launch.k; k += kDepth<E>, ++step) {
      if (in_pieces)
        static_cast<void>(
            await_announced(announced, before + step, signals, launch.pieces, a.chunk, [] { return false; }));
      multiply(product, a, first_column, columns, k, min(k + kDepth<E>, launch.k), promotes ? part : sums);
      if (promotes) scaling.promote(step, a.count, columns, part, sums);
    }
    if (in_pieces) before += step;
    if (product.sums != SumsKind::kPlain) {
      for (int r = 0; r < a.count; ++r) {
        for (int c = 0; c < columns; ++c) sums[r][c] = scaling.scaled(r, c, sums[r][c]);
      }
    }
    finish(place, columns, sums);
  });
}

/// Rounds the sums of a tile that nobody else owns.
template <class Out>
void store_tile(const Product& product, const TilePlace& place, int columns, const Sums& sums) {
  const AsyncInputLaunch& launch = product.launch;
  const TileRows to = rows_of(place.row, place.batch, product.grid.batch_rows);
  const int first_column = place.column * product.tiling.tile_columns;
  auto* const out = static_cast<Out*>(launch.out);
  for (int r = 0; r < to.count; ++r) {
    for (int c = 0; c < columns; ++c) {
      const std::int64_t at = (to.first + r) * launch.n + first_column + c;
      tandem::cuda::narrow(finished(launch.epilogue, sums[r][c], first_column + c, at), out[at]);
    }
  }
}

/// How far the threads of a CTA are whose tiles go to their owners: as kernels have it, thread 0 multiplies,
/// warps 1 and 2 push and poll, and two groups of 128 threads exchange.
struct Turns {
  int made = 0;      ///< tiles whose sums are there
  int used[2] = {};  ///< that each group has done with
};

/// What a rank's own partial has besides its sums.
inline void finish_columns(const Product& product, int first_column, int columns, Sums& sums) {
  for (auto& row : sums) {
    for (int c = 0; c < columns; ++c) row[c] = finished(product.launch.epilogue, row[c], first_column + c, 0);
  }
}

inline OwnedTile owned(const PartialExchange& partials, const TilePlace& place) {
  return {partials.owner_of(place.batch), place.row, place.column};
}

template <int kColumns, class Out, class Tiles>
void settle_tile(const Product& product, Tiles& tiles, const OwnedTile& tile, int place_aside) {
  const PartialExchange& partials = product.launch.partials;
  const StripRows rows = partials.owned_by(tile.owner);
  const int first_row = first_row_of(static_cast<int>(threadIdx.x) - kStripThreads);
  tiles.settle(tile, place_aside, [&](int block, const auto& sums) {
    const int first_column = block * PartialGrid::kColumns + static_cast<int>(threadIdx.x) % 4 * 2;
    for (int g = 0; g < num_sum_groups(sums); ++g) {
      for (int i = 0; i < 4; ++i) {
        const int at_row = tile.row * PieceGrid::kTileRows + first_row + i / 2 * 8;
        const int at_column = tile.column * kColumns + first_column + g * 8 + i % 2;
        if (!rows.has(at_row) || at_column >= partials.n) continue;
        tandem::cuda::narrow(
            sum_at(sums, g, i / 2, i % 2),
            static_cast<Out*>(
                product.launch.out)[std::int64_t{at_row - rows.begin} * partials.n + at_column]);
      }
    }
  });
}

template <int kColumns, class Out>
void exchange_tiles(const Product& product, PartialCounts& counts, Turns& turns, const Sums& sums) {
  const PartialExchange& partials = product.launch.partials;
  const int thread = static_cast<int>(threadIdx.x) - kStripThreads;
  const int group = thread / kStripThreads;
  PartialTiles<kColumns, std::is_same_v<Out, __half>> tiles(partials, counts, group);
  const bool shares = partials.grid.shares_tiles;
  const int first_row = first_row_of(thread);
  int number = 0;
  for_tiles(product, [&](const TilePlace& place) {
    while (turns.made <= number) simulated::pause();
    const OwnedTile tile = owned(partials, place);
    float own[kColumns / 8][2][2];
    const int first_column = static_cast<int>(threadIdx.x) % 4 * 2;
    const auto for_sums = [&](auto f) {
      for (int g = 0; g < kColumns / 8; ++g) {
        for (int i = 0; i < 2; ++i) {
          for (int pair = 0; pair < 2; ++pair)
            f(own[g][i][pair], first_row + 8 * i, first_column + g * 8 + pair);
        }
      }
    };
    for_sums([&](float& sum, int row, int column) { sum = sums[row][column]; });
    const auto store = [&](void* to, std::int64_t before, const StripRows& rows) {
      for_sums([&](float sum, int row, int column) {
        const int at_row = place.row * PieceGrid::kTileRows + row;
        const int at_column = place.column * kColumns + column;
        if (!rows.has(at_row) || at_column >= partials.n) return;
        tandem::cuda::narrow(sum, static_cast<Out*>(to)[(before + at_row) * partials.n + at_column]);
      });
    };
    if (partials.product != nullptr)
      store(partials.product, partials.first_of(tile.owner), {0, partials.rows_of(tile.owner)});
    const auto at = [&](int g, int row, int pair) -> float& { return own[g][row][pair]; };
    tiles.send(tile, number + 1 == num_tiles(product), at);
    const StripRows rows = partials.owned_by(tile.owner);
    if (tiles.is_own(tile)) {
      if (shares) {
        tiles.put_aside(at);
      } else {
        tiles.add(tile, at);
        store(product.launch.out, -rows.begin, rows);
      }
    }
    ++number;
    sync_warp_group(group);
    if (thread % kStripThreads == 0) ++turns.used[group];
  });
  if (shares) {
    int place_aside = 0;
    for_tiles(product, [&](const TilePlace& place) {
      const OwnedTile tile = owned(partials, place);
      if (tiles.is_own(tile)) settle_tile<kColumns, Out>(product, tiles, tile, place_aside++);
    });
  }
  tiles.end();
}

/// By all threads of a CTA.
template <int kColumns, class E, class Out>
void run_with_owners(const Product& product, PartialCounts& counts, std::byte* stage) {
  __shared__ Turns turns;
  Sums& sums = sums_of_tile();
  const PartialExchange& partials = product.launch.partials;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  if (threadIdx.x == 0) {
    turns = {};
    begin_exchange(partials, counts);
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    std::uint32_t announced = 0;
    multiply_tiles<E>(product, announced, sums, [&](const TilePlace& place, int columns, const Sums&) {
      finish_columns(product, place.column * kColumns, columns, sums);
      ++turns.made;
      while (turns.used[0] < turns.made || turns.used[1] < turns.made) simulated::pause();
    });
  }
  if (warp == 1) {
    PartialPusher<kColumns> pusher(partials, counts, stage);
    int number = 0;
    for_tiles(product, [&](const TilePlace& place) {
      if (++number < num_tiles(product)) pusher.push(owned(partials, place));
    });
    pusher.end();
  }
  if (warp == 2) {
    PartialPoller<kColumns> poller(partials, counts);
    for_tiles(product, [&](const TilePlace& place) { poller.await(owned(partials, place)); });
    poller.end();
  }
  if (threadIdx.x >= static_cast<unsigned>(kStripThreads))
    exchange_tiles<kColumns, Out>(product, counts, turns, sums);
}

/// By warp 2.
inline void announce_arrivals(const Product& product, std::uint32_t& announced) {
  const AsyncInputLaunch& launch = product.launch;
  const tandem::symm::ChunkSignals signals = signals_of(launch);
  std::uint32_t before = 0;
  bool gave_up = false;
  for_tiles(product, [&](const TilePlace& place) {
    if (!launch.pieces.has(place.row / product.grid.tiles_per_signal)) return;
    announce_pieces(signals, launch.pieces, place.row, {announced, before}, gave_up);
    before += static_cast<std::uint32_t>(launch.pieces.k_steps());
  });
}

template <int kColumns, class E, class Out>
__global__ void native_product(const Product product, const PiecePush push) {
  __shared__ std::uint32_t announced;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const auto cta = static_cast<int>(blockIdx.y * gridDim.x + blockIdx.x);
  const int multiplying = static_cast<int>(gridDim.x * gridDim.y) - push.senders;
  if (cta >= multiplying) {
    send_pieces(push, cta - multiplying, stages_of_sender());
    return;
  }
  if constexpr (kColumns % PartialGrid::kColumns == 0) {
    __shared__ PartialCounts counts;
    if (product.launch.partials.is_any())
      return run_with_owners<kColumns, E, Out>(product, counts, stage_of_warp().data);
  }
  const bool pushes = warp == 1 && push.peers > 0 && push.senders == 0;
  const bool has_pieces = product.launch.pieces.count > 0;
  if (threadIdx.x == 0) begin_announcing(announced);
  __syncthreads();
  if (threadIdx.x == 0) {
    multiply_tiles<E>(product, announced, sums_of_tile(),
                      [&](const TilePlace& place, int columns, const Sums& of_tile) {
                        store_tile<Out>(product, place, columns, of_tile);
                      });
  }
  if (pushes) push_pieces(push, cta, multiplying, stage_of_warp().data);
  if (warp == 2 && has_pieces) announce_arrivals(product, announced);
}

}  // namespace in_loops

template <class What, class OneTile>
struct AsyncInputInstance {
  static constexpr SumsKind kSums = What::template Sums<void>::kKind;
  static constexpr int kSharedBytes = 0;
  static const void* kernel() { return reinterpret_cast<const void*>(&launch); }

  static cudaError_t launch(const AsyncInputLaunch& what, cudaStream_t stream) {
    const Tiling& tiling = OneTile::kTiling;
    const ProductGrid grid = product_grid(what, tiling, kMostPiecesTogether);
    in_loops::Product product = {what, grid, tiling, What::kBIsColumnMajor, kSums};
    product.launch.partials =
        partials_of(what, grid.num_clusters * tiling.cluster_rows * tiling.cluster_columns);
    const PiecePush& push = product.grid.push;
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(OneTile::kClusterRows,
                          static_cast<unsigned>(OneTile::kClusterColumns * product.grid.num_clusters +
                                                push.senders / OneTile::kClusterRows));
    config.blockDim = dim3(kAsyncInputThreads);
    config.stream = stream;
    // All CTAs have to be resident, and each fills a multiprocessor.
    int multiprocessors = 0;
    static_cast<void>(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, 0));
    if (config.gridDim.x * config.gridDim.y > static_cast<unsigned>(multiprocessors))
      return cudaErrorCooperativeLaunchTooLarge;
    return cudaLaunchKernelEx(
        &config,
        (in_loops::native_product<OneTile::kTiling.tile_columns, typename What::Element, typename What::Out>),
        product, push);
  }
};

}  // namespace tandem::gemm::cuda
