#pragma once

// What becomes of a tile's sums before they are rounded, the same for all kernels.

#include <cutlass/half.h>

#include <cstdint>
#include <type_traits>

#include "gemm/cuda/sm90/product_grid.hpp"
#include "gemm/cuda/sm90/rounded_pairs.cuh"
#include "gemm/cuda/sm90/sum_epilogue.hpp"
#include "gemm/cuda/sm90/sum_place.cuh"

namespace tandem::gemm::cuda {

/// A number for each column of a tile, in the registers of a warp: lane l has those of its two columns in
/// groups l / 4, l / 4 + 8, ..., which lanes of other rows need too.
template <int kColumns>
struct ColumnValues {
  static constexpr int kEach = (kColumns / 8 + 7) / 8;
  float values[kEach][2];

  /// value(column) is asked for columns inside of the `columns_left`.
  template <class Value>
  CUTLASS_DEVICE void load(int columns_left, Value value) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    CUTLASS_PRAGMA_UNROLL
    for (int i = 0; i < kEach; ++i) {
      const int column = (i * 8 + lane / 4) * 8 + lane % 4 * 2;
      const bool is_inside = column < columns_left;
      CUTLASS_PRAGMA_UNROLL
      for (int pair = 0; pair < 2; ++pair) values[i][pair] = is_inside ? value(column + pair) : 0.0F;
    }
  }
  /// By all lanes: for this lane's column of a group.
  CUTLASS_DEVICE float of(int group, int pair) const {
    const int lane = static_cast<int>(threadIdx.x) % 4;
    return __shfl_sync(0xffffffffU, values[group / 8][pair], group % 8 * 4 + lane);
  }
};

/// SumEpilogue of the sums of one tile of so many columns, into an out of 16 bits.
template <int kColumns, class Out>
struct TileEpilogue {
  static constexpr bool kIsHalf = std::is_same_v<Out, cutlass::half_t>;
  struct Params {
    SumEpilogue what;
    int n;
    int batch_rows;  ///< see ProductGrid
  };
  static Params params_of(const AsyncInputLaunch& what, const ProductGrid& grid) {
    return {what.epilogue, static_cast<int>(what.n), grid.batch_rows};
  }

  /// `row`: see first_row_of().
  template <class Work, class Sums>
  CUTLASS_DEVICE static void apply(const Params& params, const Work& work, int row, Sums& sums) {
    apply_of_columns(params, work.N_idx * kColumns, sums);
    const SumEpilogue& what = params.what;
    if (what.addend == nullptr) return;
    if (what.addend_dtype == DType::kF32) {
      add_wide(params, work, row, sums);
    } else {
      add_narrow(params, work, row, sums);
    }
  }
  /// The same without an addend.
  template <class Sums>
  CUTLASS_DEVICE static void apply_of_columns(const Params& params, int first_column, Sums& sums) {
    const SumEpilogue& what = params.what;
    if (what.bias.data == nullptr && what.result == nullptr) return;
    add_bias(what, params.n - first_column, first_column, sums);
  }

 private:
  template <class Sums>
  CUTLASS_DEVICE static void add_bias(const SumEpilogue& what, int columns_left, int first_column,
                                      Sums& sums) {
    const float result = what.result == nullptr ? 1.0F : *what.result;
    ColumnValues<kColumns> bias;
    bias.load(columns_left, [&](int column) {
      return what.bias.data == nullptr ? 0.0F : bias_at(what.bias, first_column + column);
    });
    CUTLASS_PRAGMA_UNROLL
    for (int group = 0; group < num_sum_groups(sums); ++group) {
      CUTLASS_PRAGMA_UNROLL
      for (int pair = 0; pair < 2; ++pair) {
        const float added = bias.of(group, pair);
        CUTLASS_PRAGMA_UNROLL
        for (int row = 0; row < 2; ++row) {
          float& sum = sum_at(sums, group, row, pair);
          sum = (sum + added) * result;
        }
      }
    }
  }

  /// A row of the addend, from the tile's first column on; null: it lies outside.
  template <class Element, class Work>
  CUTLASS_DEVICE static const Element* row_of(const Params& params, const Work& work, int row) {
    const int at = work.M_idx * 128 + row;
    if (at >= params.batch_rows) return nullptr;
    return static_cast<const Element*>(params.what.addend) +
           (std::int64_t{work.L_idx} * params.batch_rows + at) * params.n + work.N_idx * kColumns;
  }

  template <class Sums>
  CUTLASS_DEVICE static void add(Sums& sums, int group, int row, const float2& pair) {
    sum_at(sums, group, row, 0) += pair.x;
    sum_at(sums, group, row, 1) += pair.y;
  }

  // A quad reads 32 bytes of a row at a time, which is what memory is read in.
  template <class Work, class Sums>
  CUTLASS_DEVICE static void add_wide(const Params& params, const Work& work, int row, Sums& sums) {
    const int lane = static_cast<int>(threadIdx.x) % 4;
    const int columns_left = params.n - work.N_idx * kColumns;
    CUTLASS_PRAGMA_UNROLL
    for (int i = 0; i < 2; ++i) {
      const auto* const from = row_of<float>(params, work, row + 8 * i);
      CUTLASS_PRAGMA_UNROLL
      for (int group = 0; group < num_sum_groups(sums); ++group) {
        if (from != nullptr && group * 8 < columns_left)
          add(sums, group, i, __ldcg(reinterpret_cast<const float2*>(from + group * 8 + lane * 2)));
      }
    }
  }

  // As DirectStores stores: each thread reads 16 bytes, and a quad exchanges what it has of 32 columns.
  template <class Work, class Sums>
  CUTLASS_DEVICE static void add_narrow(const Params& params, const Work& work, int row, Sums& sums) {
    constexpr int kGroups = num_sum_groups(Sums{});
    const int lane = static_cast<int>(threadIdx.x) % 4;
    const int columns_left = params.n - work.N_idx * kColumns;
    CUTLASS_PRAGMA_UNROLL
    for (int i = 0; i < 2; ++i) {
      const auto* const from = row_of<Out>(params, work, row + 8 * i);
      CUTLASS_PRAGMA_UNROLL
      for (int group = 0; group + 4 <= kGroups; group += 4) {
        const int column = (group + lane) * 8;
        const bool is_inside = from != nullptr && column < columns_left;
        const uint4 read =
            is_inside ? __ldcg(reinterpret_cast<const uint4*>(from + column)) : make_uint4(0, 0, 0, 0);
        std::uint32_t pairs[4] = {read.x, read.y, read.z, read.w};
        transpose_in_quad(lane, pairs);
        CUTLASS_PRAGMA_UNROLL
        for (int g = 0; g < 4; ++g) add(sums, group + g, i, values_of<kIsHalf>(pairs[g]));
      }
      CUTLASS_PRAGMA_UNROLL
      for (int group = kGroups / 4 * 4; group < kGroups; ++group) {
        if (from != nullptr && group * 8 < columns_left) {
          const auto* const at = reinterpret_cast<const std::uint32_t*>(from + group * 8 + lane * 2);
          add(sums, group, i, values_of<kIsHalf>(__ldcg(at)));
        }
      }
    }
  }
};

}  // namespace tandem::gemm::cuda
