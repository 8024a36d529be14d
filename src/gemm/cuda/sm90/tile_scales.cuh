#pragma once

// The scales of a tile's sums, as one thread needs them.

#include <cstdint>

#include "gemm/cuda/sm90/product_grid.hpp"
#include "gemm/cuda/sm90/sum_place.cuh"
#include "gemm/cuda/sm90/sum_scales.hpp"
#include "gemm/cuda/sm90/tile_epilogue.cuh"

namespace tandem::gemm::cuda {

/// Of its two rows.
struct ScalesOfRows {
  struct Params {
    SumScales scales;
    int n;
    // Rows of a batch, see ProductGrid.
    int rows;
    int complete_rows;
    int complete_begin;
    int tiles_per_signal;
    int shard_rows;  ///< batches are owners of so many rows of one; 0: they are not
  };
  static Params params_of(const AsyncInputLaunch& what, const ProductGrid& grid) {
    return {.scales = what.scales,
            .n = static_cast<int>(what.n),
            .rows = grid.batch_rows,
            .complete_rows = grid.complete_rows,
            .complete_begin = what.complete_begin,
            .tiles_per_signal = grid.tiles_per_signal,
            .shard_rows = what.partials.batch_rows()};
  }

  const float* rows[2];  ///< null: 1
  std::int64_t block_stride;

  /// Rows that lie outside of the matrix take the scale of its last one.
  template <class Work>
  CUTLASS_DEVICE ScalesOfRows(const Params& params, const Work& work, bool is_complete, int first_row) {
    const RowScales& from = is_complete ? params.scales.complete_rows : params.scales.rows;
    const int before = is_complete ? params.complete_begin : 0;
    const int batch_rows = is_complete ? params.complete_rows : params.rows;
    const bool by_batches = params.tiles_per_signal == 0;
    const int batch = work.L_idx - (by_batches ? before : 0);
    const int tile = work.M_idx - (by_batches ? 0 : before * params.tiles_per_signal);
    const bool has_owners = params.shard_rows > 0;
    const int first = tile * 128 + first_row + (has_owners ? batch * params.shard_rows : 0);
    const std::int64_t batch_row = has_owners ? 0 : std::int64_t{batch} * batch_rows;
    block_stride = from.block_stride;
    CUTLASS_PRAGMA_UNROLL
    for (int i = 0; i < 2; ++i) {
      const int row = min(first + 8 * i, batch_rows - 1);
      rows[i] = from.data == nullptr ? nullptr : from.data + (batch_row + row) * from.row_stride;
    }
  }

  /// They may have come from another GPU while the kernel ran, so the first-level cache has no say. Order:
  /// this thread has waited for a stage of the tile, before which the thread that loads has acquired the word
  /// that says that they are there: the first one, but where AsyncInputMainloop::Params::scales_step says
  /// otherwise.
  CUTLASS_DEVICE static float load(const float* scale) { return __ldcg(scale); }
  /// Of block `block` of k.
  CUTLASS_DEVICE float at(int i, int block) const {
    return rows[i] == nullptr ? 1.0F : load(rows[i] + block * block_stride);
  }
};

/// All that the sums of one tile are multiplied by when they are complete.
template <int kColumns>
struct TileScales {
  float rows[2];
  ColumnValues<kColumns> columns;

  CUTLASS_DEVICE void load_rows(const ScalesOfRows& of_rows) {
    rows[0] = of_rows.at(0, 0);
    rows[1] = of_rows.at(1, 0);
  }
  /// `first_column`: of the tile.
  CUTLASS_DEVICE void load_columns(const ScalesOfRows::Params& params, int first_column) {
    const SumScales& scales = params.scales;
    columns.load(params.n - first_column, [&](int column) {
      return scales.columns == nullptr ? 1.0F
                                       : scales.columns[(first_column + column) * scales.column_stride];
    });
  }

  template <class Sums>
  CUTLASS_DEVICE void apply(Sums& sums) const {
    CUTLASS_PRAGMA_UNROLL
    for (int group = 0; group < num_sum_groups(sums); ++group) {
      CUTLASS_PRAGMA_UNROLL
      for (int pair = 0; pair < 2; ++pair) {
        const float scale = columns.of(group, pair);
        CUTLASS_PRAGMA_UNROLL
        for (int row = 0; row < 2; ++row) sum_at(sums, group, row, pair) *= rows[row] * scale;
      }
    }
  }
};

}  // namespace tandem::gemm::cuda
