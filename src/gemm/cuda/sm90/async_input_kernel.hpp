#pragma once

// What the native kernels offer to the host; they themselves are in instances/. Included by .cu files.

#include <cuda_runtime_api.h>

#include <cstdint>
#include <string>
#include <tandem/base/dtype.hpp>
#include <tandem/device/chunk_waits.hpp>
#include <tandem/gemm/chunk_order.hpp>
#include <tandem/gemm/tile_order.hpp>
#include <tandem/symm/kernel.hpp>

#include "gemm/cuda/sm90/partial_exchange.hpp"
#include "gemm/cuda/sm90/piece_exchange.hpp"
#include "gemm/cuda/sm90/sum_epilogue.hpp"
#include "gemm/cuda/sm90/sum_scales.hpp"

namespace tandem::gemm::cuda {

/// One launch: chunks of equal rows, but for the last one if all others have whole tiles.
struct AsyncInputLaunch {
  const void* a = nullptr;  ///< row 0 of chunk 0
  const void* b = nullptr;
  void* out = nullptr;
  std::int64_t n = 0;
  std::int64_t k = 0;
  std::int64_t rows = 0;
  ChunkOrder chunks;  ///< of these rows, as tiles are taken
  TileStart start;
  int signal_rows = 0;  ///< rows that a signal stands for: whole tiles, or of chunks that all have as many
  const std::uint32_t* signals = nullptr;
  std::uint32_t expected = 1;
  // What signals [complete_begin, complete_end) stand for, contiguous at `complete`.
  const void* complete = nullptr;
  std::int64_t complete_rows = 0;
  int complete_begin = 0;
  int complete_end = 0;
  int first_number = 0;     ///< signal 0's in errors
  int chunks_per_rank = 0;  ///< signals of a rank; 0: nobody knows the senders
  symm::KernelHandle waits;
  ChunkWaitLog log;           ///< where waits for chunks are noted, if anywhere
  IncomingPieces pieces;      ///< of chunks that arrive in pieces, if any; their signals are not looked at
  PiecePush push;             ///< what the kernel sends, if anything
  int num_clusters = 1;       ///< most that run at one time
  bool begins_early = false;  ///< beside the kernel before: see device/cuda/next_kernel.cuh
  double wave_us = 0;         ///< what a tile takes, about
  SumScales scales;           ///< of kernels that scale
  SumEpilogue epilogue;       ///< without an addend where rows go to owners
  /// Where rows go to their owners, who are the chunks: `out` is of the own rows then.
  PartialExchange partials;
};

/// Those of a launch of so many CTAs.
[[nodiscard]] inline PartialExchange partials_of(const AsyncInputLaunch& what, int ctas) {
  PartialExchange partials = what.partials;
  partials.parties = ctas * kPartiesOfCta;
  return partials;
}

/// What a kernel makes of its sums before the epilogue.
enum class SumsKind : std::uint8_t {
  kPlain,     ///< nothing
  kScaled,    ///< scales them at the end of k, see SumScales
  kPromoted,  ///< the same, and adds up those of 128 of k in f32, scaled along k too
};

/// Whether a kernel's tiles are whole blocks of partials, and its sums leave registers for their exchange.
/// Those of the widest tile of a single CTA do not: its loads keep more. Promoted sums do so only in tiles
/// that are no wider than the part which is promoted at one time.
[[nodiscard]] constexpr bool can_exchange_partials(int tile_columns, int ctas_of_cluster, SumsKind sums) {
  if (sums == SumsKind::kPromoted) return tile_columns == 128;
  return tile_columns % PartialGrid::kColumns == 0 && (tile_columns < 256 || ctas_of_cluster > 1);
}

/// Of a CTA: a warp group of producers, two of consumers.
inline constexpr int kAsyncInputThreads = 384;

/// 16 rows of tiles swept together: with some 8 columns at one time, about a square of out.
[[nodiscard]] constexpr Tiling async_input_tiling(int columns, int cluster_rows, int cluster_columns) {
  return {.tile_rows = 128,
          .tile_columns = columns,
          .cluster_rows = cluster_rows,
          .cluster_columns = cluster_columns,
          .group = 16 / cluster_rows};
}

/// The tile of an instance.
template <int kColumns_, int kClusterRows_, int kClusterColumns_ = 1>
struct InstanceTile {
  static constexpr int kColumns = kColumns_;
  static constexpr int kClusterRows = kClusterRows_;
  static constexpr int kClusterColumns = kClusterColumns_;
  static constexpr Tiling kTiling = async_input_tiling(kColumns, kClusterRows, kClusterColumns);
};
template <class... Tiles>
struct TileList {};

/// "bf16 t 128x256 2x1" of the family "bf16 t".
[[nodiscard]] inline std::string name_of(const std::string& family, const Tiling& tiling) {
  return family + ' ' + std::to_string(tiling.tile_rows) + 'x' + std::to_string(tiling.tile_columns) + ' ' +
         std::to_string(tiling.cluster_rows) + 'x' + std::to_string(tiling.cluster_columns);
}

/// One instance. Tiles of 128 rows, k in steps of 128 bytes.
struct AsyncInputKernel {
  std::string name;  ///< see name_of()
  DType dtype;       ///< of a and b
  DType out;
  SumsKind sums;
  bool b_is_column_major;
  Tiling tiling;
  const void* kernel;
  int shared_bytes;
  cudaError_t (*launch)(const AsyncInputLaunch& what, cudaStream_t stream);
};

}  // namespace tandem::gemm::cuda
