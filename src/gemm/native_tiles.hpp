#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <tandem/base/dtype.hpp>
#include <tandem/gemm/tile_order.hpp>

#include "gemm/partial_grid.hpp"

// The tiles of the native kernels, and what of a kernel the model needs. The kernels themselves are in
// cuda/sm90/instances/. Included by .cu files.

namespace tandem::gemm {

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

// The tiles of the kernels, the widest first. Each wins somewhere, which is said behind it.

/// 16 bits, b column-major.
using ColumnMajorTiles =
    TileList<InstanceTile<256, 2>,  // large outputs: the fewest loads per flop
             // 3584 and 7168 columns: whole waves where 256 wastes the last one
             InstanceTile<224, 2>, InstanceTile<208, 2>,  // 6656 columns, and others that it divides
             // three rows of tiles, of up to 384 rows
             InstanceTile<192, 1, 2>,
             // few rows: twice the tiles of 224, so that the own shard fills a first wave
             InstanceTile<112, 2>,
             // chunks with an odd number of tile rows, and the smallest outputs
             InstanceTile<128, 1>,
             // up to 128 rows, which are bound by b's way from memory: nearly all multiprocessors read it
             InstanceTile<64, 1, 2>>;
/// 16 bits, b row-major. Where it was measured: bench/results/h200_native_kernels_orders.json.
using RowMajorTiles = TileList<InstanceTile<256, 2>,   // large outputs, 8192 columns
                               InstanceTile<256, 1>,   // chunks with an odd number of tile rows
                               InstanceTile<224, 2>,   // 7168 columns, and others that it divides
                               InstanceTile<192, 2>,   // 8192 rows of 8192 columns
                               InstanceTile<128, 2>,   // few rows: as 112 columns of the other order
                               InstanceTile<128, 1>>;  // the smallest outputs with an odd number of tile rows
/// f8 with fast sums, as of 16 bits.
using ScaledTiles =
    TileList<InstanceTile<256, 2>, InstanceTile<224, 2>, InstanceTile<112, 2>, InstanceTile<128, 1>>;
/// f8 with sums that are added up in f32, in parts of 128 columns.
using PromotedTiles = TileList<InstanceTile<256, 2>, InstanceTile<128, 1>>;

/// What the choice of a kernel goes by. Tiles of 128 rows, k in steps of 128 bytes.
struct NativeKernel {
  std::string name;  ///< see name_of()
  DType dtype;       ///< of a and b
  DType out;
  SumsKind sums;
  bool b_is_column_major;
  Tiling tiling;
};

/// All of them, as every GPU of compute capability 9.0 has them.
[[nodiscard]] std::span<const NativeKernel> native_kernels_of_hopper();

}  // namespace tandem::gemm
