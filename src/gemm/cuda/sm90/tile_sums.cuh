#pragma once

// How the warps that multiply make the sums of a tile: each kernel has one of these ways.

#include <cuda_bf16.h>

#include <cutlass/arch/barrier.h>
#include <cute/tensor.hpp>

#include <cstdint>

#include "gemm/cuda/sm90/product_grid.hpp"
#include "gemm/cuda/sm90/sum_scales.hpp"

namespace tandem::gemm::cuda {

/// Sums as they are.
template <class Mainloop>
struct PlainSums {
  struct Params {};
  static Params params_of(const AsyncInputLaunch&, const ProductGrid&) { return {}; }

  template <class Work, class Sums>
  CUTLASS_DEVICE static void make(const Params&, const typename Mainloop::Params& mainloop_params,
                                  Mainloop& mainloop, typename Mainloop::MainloopPipeline& pipeline,
                                  typename Mainloop::PipelineState& state, const Work&, int k_steps,
                                  int thread, typename Mainloop::TensorStorage& shared, Sums& sums) {
    mainloop.mma(pipeline, state, sums, k_steps, thread, shared, mainloop_params);
    mainloop.mma_tail(pipeline, state, k_steps);
  }
};

/// The scales of a tile as one thread needs them. Its sums lie in two rows eight apart, and in two columns
/// of every eight.
struct TileScales {
  struct Params {
    SumScales scales;
    int n;
    // Rows of a batch, see ProductGrid.
    int rows;
    int complete_rows;
    int complete_begin;
    int tiles_per_signal;
  };
  static Params params_of(const AsyncInputLaunch& what, const ProductGrid& grid) {
    return {.scales = what.scales,
            .n = static_cast<int>(what.n),
            .rows = grid.batch_rows,
            .complete_rows = grid.complete_rows,
            .complete_begin = what.complete_begin,
            .tiles_per_signal = grid.tiles_per_signal};
  }
  static constexpr int kRows = 2;

  const float* rows[kRows];  ///< null: 1
  std::int64_t block_stride;

  /// Rows that lie outside of the matrix take the scale of its last one.
  template <class Work>
  CUTLASS_DEVICE TileScales(const Params& params, const Work& work, bool is_complete, int first_row) {
    const RowScales& from = is_complete ? params.scales.complete_rows : params.scales.rows;
    const int before = is_complete ? params.complete_begin : 0;
    const int batch_rows = is_complete ? params.complete_rows : params.rows;
    const bool by_batches = params.tiles_per_signal == 0;
    const int batch = work.L_idx - (by_batches ? before : 0);
    const int tile = work.M_idx - (by_batches ? 0 : before * params.tiles_per_signal);
    block_stride = from.block_stride;
    CUTLASS_PRAGMA_UNROLL
    for (int i = 0; i < kRows; ++i) {
      const int row = min(tile * 128 + first_row + 8 * i, batch_rows - 1);
      rows[i] = from.data == nullptr ? nullptr
                                     : from.data + (std::int64_t{batch} * batch_rows + row) * from.row_stride;
    }
  }

  /// Of block `block` of k. They may have come from another GPU while the kernel ran, so the first-level
  /// cache has no say. Order: the thread that loads has acquired the chunk before it announced a stage that
  /// this thread has waited for.
  CUTLASS_DEVICE float row(int i, int block) const {
    return rows[i] == nullptr ? 1.0F : __ldcg(rows[i] + block * block_stride);
  }
};

/// Of one step of k.
struct StepScales {
  float rows[2] = {1.0F, 1.0F};
  float b = 1.0F;
};

/// Calls function(row, column, sum) for the sums of a thread: row is 0 or 1, see TileScales, and column the
/// distance from its first one. Eight columns at a time lie inside of the matrix or outside; of those outside
/// there is nothing to do.
template <class Sums, class Function>
CUTLASS_DEVICE void for_sums(Sums& sums, int columns_left, Function function) {
  using namespace cute;
  // The accumulators of one instruction of 64 rows: pairs of columns, two rows, groups of eight columns.
  static_assert(decltype(size<0, 0>(sums))::value == 2 && decltype(size<0, 1>(sums))::value == 2);
  static_assert(decltype(size<1>(sums))::value == 1 && decltype(size<2>(sums))::value == 1);
  CUTLASS_PRAGMA_UNROLL
  for (int group = 0; group < size<0, 2>(sums); ++group) {
    if (group * 8 >= columns_left) continue;
    CUTLASS_PRAGMA_UNROLL
    for (int pair = 0; pair < 2; ++pair) {
      const auto of_column = function(group * 8 + pair);
      CUTLASS_PRAGMA_UNROLL
      for (int row = 0; row < 2; ++row) of_column(row, sums(make_coord(pair, row, group), 0, 0));
    }
  }
}

/// Where a thread's sums begin in the tile.
struct SumPlace {
  int row;
  int column;
  CUTLASS_DEVICE explicit SumPlace(int thread)
      : row(thread / 128 * 64 + thread % 128 / 32 * 16 + thread % 32 / 4), column(thread % 4 * 2) {}
};

CUTLASS_DEVICE float bias_at(const SumScales& scales, int column) {
  const int at = column * scales.bias_stride;
  if (scales.bias_dtype == DType::kF32) return static_cast<const float*>(scales.bias)[at];
  return __bfloat162float(static_cast<const __nv_bfloat16*>(scales.bias)[at]);
}

/// ((sum * row scale) * column scale + bias) * result scale, but for the parts that are left out. Scales
/// along k have been applied before.
template <class Sums>
CUTLASS_DEVICE void finish_sums(const TileScales::Params& params, const TileScales& of_rows, int first_column,
                                Sums& sums) {
  const SumScales& scales = params.scales;
  const int columns_left = params.n - first_column;
  if (!scales.along_k) {
    const float rows[2] = {of_rows.row(0, 0), of_rows.row(1, 0)};
    const float* const columns =
        scales.columns == nullptr ? nullptr : scales.columns + first_column * scales.column_stride;
    for_sums(sums, columns_left, [&](int column) {
      const float scale = columns == nullptr ? 1.0F : columns[column * scales.column_stride];
      return [&rows, scale](int row, float& sum) { sum = sum * rows[row] * scale; };
    });
  }
  if (scales.bias == nullptr && scales.result == nullptr) return;
  const float result = scales.result == nullptr ? 1.0F : *scales.result;
  for_sums(sums, columns_left, [&](int column) {
    const float bias = scales.bias == nullptr ? 0.0F : bias_at(scales, first_column + column);
    return [bias, result](int, float& sum) { sum = (sum + bias) * result; };
  });
}

/// Sums over all of k in the registers of the tensor cores, scaled at the end.
template <class Mainloop>
struct ScaledSums {
  using Params = TileScales::Params;
  static Params params_of(const AsyncInputLaunch& what, const ProductGrid& grid) {
    return TileScales::params_of(what, grid);
  }

  template <class Work, class Sums>
  CUTLASS_DEVICE static void make(const Params& params, const typename Mainloop::Params& mainloop_params,
                                  Mainloop& mainloop, typename Mainloop::MainloopPipeline& pipeline,
                                  typename Mainloop::PipelineState& state, const Work& work, int k_steps,
                                  int thread, typename Mainloop::TensorStorage& shared, Sums& sums) {
    mainloop.mma(pipeline, state, sums, k_steps, thread, shared, mainloop_params);
    mainloop.mma_tail(pipeline, state, k_steps);
    const SumPlace place(thread);
    const TileScales scales(params, work, mainloop_params.is_complete(work), place.row);
    constexpr int kColumns = static_cast<int>(cute::size<1>(typename Mainloop::TileShape{}));
    finish_sums(params, scales, work.N_idx * kColumns + place.column, sums);
  }
};

/// Sums over 128 of k, which are scaled and added up in f32. The tensor cores keep f8 sums in fewer bits than
/// f32 has.
template <class Mainloop>
struct PromotedSums {
  using Params = TileScales::Params;
  static constexpr int kColumns = static_cast<int>(cute::size<1>(typename Mainloop::TileShape{}));
  static_assert(kColumns == 128 && cute::size<2>(typename Mainloop::TileShape{}) == 128,
                "a step of a tile has one scale of b by blocks");
  static Params params_of(const AsyncInputLaunch& what, const ProductGrid& grid) {
    return TileScales::params_of(what, grid);
  }

  template <class Work, class Sums>
  CUTLASS_DEVICE static void make(const Params& params, const typename Mainloop::Params& mainloop_params,
                                  Mainloop&, typename Mainloop::MainloopPipeline& pipeline,
                                  const typename Mainloop::PipelineState& begin, const Work& work,
                                  int k_steps, int thread, typename Mainloop::TensorStorage& shared,
                                  Sums& sums) {
    using namespace cute;
    using TiledMma = typename Mainloop::TiledMma;
    Tensor sA = make_tensor(make_smem_ptr(shared.smem_A.data()), typename Mainloop::SmemLayoutA{});
    Tensor sB = make_tensor(make_smem_ptr(shared.smem_B.data()), typename Mainloop::SmemLayoutB{});
    TiledMma tiled_mma;
    constexpr int kGroups = size(TiledMma{}) / cutlass::NumThreadsPerWarpGroup;
    const int group = __shfl_sync(0xffffffffU, thread / cutlass::NumThreadsPerWarpGroup, 0);
    auto mma =
        tiled_mma.get_slice(make_layout(Int<kGroups>{}, Int<cutlass::NumThreadsPerWarpGroup>{})(group));
    Tensor a = mma.make_fragment_A(mma.partition_A(sA));
    Tensor b = mma.make_fragment_B(mma.partition_B(sB));
    clear(sums);

    const SumPlace place(thread);
    const TileScales scales(params, work, mainloop_params.is_complete(work), place.row);
    const SumScales& all = params.scales;
    const float* const of_b =
        all.along_k && all.columns != nullptr ? all.columns + work.N_idx * all.column_stride : nullptr;
    const auto scales_of = [&](int step) {
      StepScales of_step;
      if (!all.along_k) return of_step;
      if (of_b != nullptr) of_step.b = of_b[step * all.block_stride];
      of_step.rows[0] = scales.row(0, step);
      of_step.rows[1] = scales.row(1, step);
      return of_step;
    };

    // While one step's sums are promoted the tensor cores work on the next one's.
    auto issued = begin;
    auto finished = begin;
    auto even = make_fragment_like(sums);
    auto odd = make_fragment_like(sums);
    const auto issue = [&](auto& partial) {
      pipeline.consumer_wait(issued, pipeline.consumer_try_wait(issued));
      warpgroup_fence_operand(partial);
      warpgroup_arrive();
      tiled_mma.accumulate_ = GMMA::ScaleOut::Zero;
      CUTLASS_PRAGMA_UNROLL
      for (int part = 0; part < size<2>(a); ++part) {
        cute::gemm(tiled_mma, a(_, _, part, issued.index()), b(_, _, part, issued.index()), partial);
        tiled_mma.accumulate_ = GMMA::ScaleOut::One;
      }
      warpgroup_commit_batch();
      ++issued;
    };
    const auto promote = [&](const StepScales& scale, auto& partial) {
      warpgroup_fence_operand(partial);
      pipeline.consumer_release(finished);
      ++finished;
      const float factors[2] = {scale.rows[0] * scale.b, scale.rows[1] * scale.b};
      CUTLASS_PRAGMA_UNROLL
      for (int i = 0; i < size(sums); ++i) sums(i) += partial(i) * factors[i / 2 % 2];
    };
    issue(even);
    StepScales of_even = scales_of(0);  // they are there with the elements
    StepScales of_odd;
    int step = 0;
    CUTLASS_PRAGMA_NO_UNROLL
    for (; step + 2 < k_steps; step += 2) {
      issue(odd);
      of_odd = scales_of(step + 1);
      warpgroup_wait<1>();
      promote(of_even, even);
      issue(even);
      of_even = scales_of(step + 2);
      warpgroup_wait<1>();
      promote(of_odd, odd);
    }
    if (step + 1 < k_steps) {
      issue(odd);
      of_odd = scales_of(step + 1);
      warpgroup_wait<1>();
      promote(of_even, even);
      warpgroup_wait<0>();
      promote(of_odd, odd);
    } else {
      warpgroup_wait<0>();
      promote(of_even, even);
    }
    finish_sums(params, scales, work.N_idx * kColumns + place.column, sums);
  }
};

}  // namespace tandem::gemm::cuda
