#pragma once

// The twin of gemm/cuda/sm90/async_input_instance.cuh for the simulated GPU, found before it by
// instance_list.cuh: the same launches, tiles, waits and pieces, and a loop in place of tensor instructions,
// which no host has. Thread 0 of a CTA loads and multiplies; warps 1 and 2 exchange pieces, as there.

#include <cuda_fp8.h>

#include <algorithm>
#include <iterator>

#include "device/cuda/elements.cuh"
#include "gemm/cuda/sm90/async_input_signals.cuh"
#include "gemm/cuda/sm90/piece_exchange.cuh"
#include "gemm/cuda/sm90/product_grid.hpp"

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
  [[nodiscard]] float finished(int r, int c, float sum) const {
    const std::int64_t column = first_column + c;
    if (!scales.along_k) {
      sum *= row(r, 0);
      if (scales.columns != nullptr) sum *= scales.columns[column * scales.column_stride];
    }
    if (scales.bias != nullptr) {
      const std::int64_t at = column * scales.bias_stride;
      sum += scales.bias_dtype == DType::kF32
                 ? static_cast<const float*>(scales.bias)[at]
                 : tandem::cuda::widen(static_cast<const __nv_bfloat16*>(scales.bias)[at]);
    }
    return scales.result == nullptr ? sum : sum * *scales.result;
  }
};

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

/// By thread 0.
template <class E, class Out>
void multiply_tiles(const Product& product, std::uint32_t& announced) {
  const AsyncInputLaunch& launch = product.launch;
  const tandem::symm::ChunkSignals signals = signals_of(launch);
  __shared__ Sums sums;
  __shared__ Sums part;
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
      if (in_pieces) static_cast<void>(await_announced(announced, before + step, [] { return false; }));
      multiply(product, a, first_column, columns, k, min(k + kDepth<E>, launch.k), promotes ? part : sums);
      if (promotes) scaling.promote(step, a.count, columns, part, sums);
    }
    if (in_pieces) before += step;
    const TileRows to = rows_of(place.row, place.batch, product.grid.batch_rows);
    auto* const out = static_cast<Out*>(launch.out) + to.first * launch.n + first_column;
    for (int r = 0; r < to.count; ++r) {
      for (int c = 0; c < columns; ++c) {
        const float sum = product.sums == SumsKind::kPlain ? sums[r][c] : scaling.finished(r, c, sums[r][c]);
        tandem::cuda::narrow(sum, out[r * launch.n + c]);
      }
    }
  });
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

template <class E, class Out>
__global__ void native_product(const Product product, const PiecePush push) {
  __shared__ SenderStages senders;
  __shared__ PieceStage<kMostPiecesTogether> stage;
  __shared__ std::uint32_t announced;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const auto cta = static_cast<int>(blockIdx.y * gridDim.x + blockIdx.x);
  const int multiplying = static_cast<int>(gridDim.x * gridDim.y) - push.senders;
  if (cta >= multiplying) {
    send_pieces(push, cta - multiplying, senders);
    return;
  }
  const bool pushes = warp == 1 && push.peers > 0 && push.senders == 0;
  const bool has_pieces = product.launch.pieces.count > 0;
  if (threadIdx.x == 0) begin_announcing(announced);
  __syncthreads();
  if (threadIdx.x == 0) multiply_tiles<E, Out>(product, announced);
  if (pushes) push_pieces(push, cta, multiplying, stage.data);
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
    const in_loops::Product product = {what, grid, tiling, What::kBIsColumnMajor, kSums};
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
    return cudaLaunchKernelEx(&config, (in_loops::native_product<typename What::Element, typename What::Out>),
                              product, push);
  }
};

}  // namespace tandem::gemm::cuda
