#pragma once

// How a tile's sums go to memory.

#include <cutlass/half.h>

#include <cute/tensor.hpp>

#include <cstdint>
#include <type_traits>

#include "gemm/cuda/sm90/partial_exchange.cuh"
#include "gemm/cuda/sm90/rounded_pairs.cuh"
#include "gemm/cuda/sm90/sum_place.cuh"

namespace tandem::gemm::cuda {

/// Each thread rounds its own sums and stores them, 16 bytes at a time: the four threads of a quad first
/// exchange what they have of 32 columns of a row. Nobody waits for anybody, so that one warp group stores
/// while the other multiplies, and no shared memory is needed.
/// Shapes:  out has n columns, a multiple of 8, and begins at a multiple of 16 bytes.
template <class Out>
struct DirectStores {
  static_assert(sizeof(Out) == 2);
  static constexpr bool kIsHalf = std::is_same_v<Out, cutlass::half_t>;
  struct Params {
    Out* out;
    int n;
    int batch_rows;  ///< see ProductGrid
  };
  /// Rows of a batch.
  struct Rows {
    Out* out;   ///< the batch's first row
    int first;  ///< of the tile; it may lie before the batch's
    int end;    ///< of the batch
  };
  template <class Work>
  CUTLASS_DEVICE static Rows rows_of(const Params& params, const Work& work) {
    return {params.out + std::int64_t{work.L_idx} * params.batch_rows * params.n, work.M_idx * 128,
            params.batch_rows};
  }
  /// Of a tile's owner: all that out is of, and where this rank's partials of its rows are kept.
  CUTLASS_DEVICE static Rows own_rows(const Params& params, const PartialExchange& partials,
                                      const OwnedTile& tile) {
    const StripRows own = partials.owned_by(tile.owner);
    return {params.out, tile.row * 128 - own.begin, own.end - own.begin};
  }
  CUTLASS_DEVICE static Rows product_rows(const PartialExchange& partials, const OwnedTile& tile) {
    return {static_cast<Out*>(partials.product) + std::int64_t{partials.first_of(tile.owner)} * partials.n,
            tile.row * 128, partials.rows_of(tile.owner)};
  }

  /// `row`: see first_row_of(); `first_column`: of the tile.
  template <class Sums>
  CUTLASS_DEVICE static void store(const Rows& rows, int n, int row, int first_column, const Sums& sums) {
    using namespace cute;
    constexpr int kGroups = num_sum_groups(Sums{});
    const int lane = static_cast<int>(threadIdx.x) % 4;
    CUTLASS_PRAGMA_UNROLL
    for (int i = 0; i < 2; ++i) {
      const int at = rows.first + row + 8 * i;
      const bool is_inside = static_cast<unsigned>(at) < static_cast<unsigned>(rows.end);
      Out* const to = rows.out + std::int64_t{at} * n + first_column;
      const auto pair = [&](int group) {
        return rounded_pair<kIsHalf>(sum_at(sums, group, i, 0), sum_at(sums, group, i, 1));
      };
      CUTLASS_PRAGMA_UNROLL
      for (int group = 0; group + 4 <= kGroups; group += 4) {
        std::uint32_t pairs[4];
        CUTLASS_PRAGMA_UNROLL
        for (int g = 0; g < 4; ++g) pairs[g] = pair(group + g);
        transpose_in_quad(lane, pairs);
        const int column = (group + lane) * 8;
        if (is_inside && first_column + column < n)
          *reinterpret_cast<uint4*>(to + column) = make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
      }
      CUTLASS_PRAGMA_UNROLL
      for (int group = kGroups / 4 * 4; group < kGroups; ++group) {
        if (is_inside && first_column + group * 8 < n)
          *reinterpret_cast<std::uint32_t*>(to + group * 8 + lane * 2) = pair(group);
      }
    }
  }
};

}  // namespace tandem::gemm::cuda
