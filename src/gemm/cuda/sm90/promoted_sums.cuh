#pragma once

#include "gemm/cuda/sm90/tile_scales.cuh"

namespace tandem::gemm::cuda {

/// Sums over 128 of k, which are scaled and added up in f32. The tensor cores keep f8 sums in fewer bits than
/// f32 has. Registers do not hold two sums of a tile: what a step adds is made for 128 columns at a time.
/// While one warp group adds up, the other has the tensor cores. See plain_sums.cuh.
template <class Mainloop>
struct PromotedSums {
  static constexpr SumsKind kKind = SumsKind::kPromoted;
  static constexpr int kColumns = static_cast<int>(cute::size<1>(typename Mainloop::TileShape{}));
  static constexpr int kPartColumns = 128;
  static constexpr int kParts = kColumns / kPartColumns;
  static constexpr bool kAhead = kParts == 1;
  static_assert(kColumns % kPartColumns == 0 && cute::size<2>(typename Mainloop::TileShape{}) == 128,
                "a part of a step has one scale of b by blocks");
  using Params = ScalesOfRows::Params;
  static Params params_of(const AsyncInputLaunch& what, const ProductGrid& grid) {
    return ScalesOfRows::params_of(what, grid);
  }

  /// Of one step of k.
  struct StepScales {
    float rows[2] = {1.0F, 1.0F};
    float parts[kParts];
  };

  template <class Work, class Sums>
  CUTLASS_DEVICE static void make(const Params& params, const typename Mainloop::Params& mainloop_params,
                                  Mainloop&, typename Mainloop::MainloopPipeline& pipeline,
                                  const typename Mainloop::PipelineState& begin, const Work& work,
                                  int k_steps, int thread, typename Mainloop::TensorStorage& shared,
                                  Sums& sums) {
    using namespace cute;
    using Element = typename Mainloop::ElementA;
    using PartShape = Shape<_128, Int<kPartColumns>, _128>;
    auto part_mma = make_tiled_mma(
        GMMA::ss_op_selector<Element, Element, float, PartShape, GMMA::Major::K, GMMA::Major::K>(),
        Layout<Shape<_2, _1, _1>>{});
    Tensor sA = make_tensor(make_smem_ptr(shared.smem_A.data()), typename Mainloop::SmemLayoutA{});
    Tensor sB = make_tensor(make_smem_ptr(shared.smem_B.data()), typename Mainloop::SmemLayoutB{});
    constexpr int kGroups = 2;
    const int group = __shfl_sync(0xffffffffU, thread / cutlass::NumThreadsPerWarpGroup, 0);
    auto mma = part_mma.get_slice(make_layout(Int<kGroups>{}, Int<cutlass::NumThreadsPerWarpGroup>{})(group));
    Tensor a = mma.make_fragment_A(mma.partition_A(sA));
    Tensor b = mma.make_fragment_B(mma.partition_B(sB));
    auto partial = partition_fragment_C(part_mma, take<0, 2>(PartShape{}));
    clear(sums);

    const SumScales& all = params.scales;
    const int first_column = work.N_idx * kColumns;
    const ScalesOfRows of_rows(params, work, mainloop_params.is_complete(work), SumPlace(thread).row);
    const auto scales_of = [&](int step) {
      StepScales of_step;
      if (all.along_k) {
        of_step.rows[0] = of_rows.at(0, step);
        of_step.rows[1] = of_rows.at(1, step);
      }
      CUTLASS_PRAGMA_UNROLL
      for (int part = 0; part < kParts; ++part) {
        const int block = min(work.N_idx * kParts + part, (params.n - 1) / kPartColumns);
        of_step.parts[part] = !all.along_k || all.columns == nullptr
                                  ? 1.0F
                                  : all.columns[block * all.column_stride + step * all.block_stride];
      }
      return of_step;
    };

    if constexpr (kAhead) {
      auto issued = begin;
      auto finished = begin;
      auto other = make_fragment_like(partial);
      TileScales<kColumns> scales;
      const auto issue = [&](auto& to) {
        pipeline.consumer_wait(issued, pipeline.consumer_try_wait(issued));
        warpgroup_fence_operand(to);
        warpgroup_arrive();
        part_mma.accumulate_ = GMMA::ScaleOut::Zero;
        CUTLASS_PRAGMA_UNROLL
        for (int i = 0; i < size<2>(a); ++i) {
          cute::gemm(part_mma, a(_, 0, i, issued.index()), b(_, 0, i, issued.index()), to(_, 0, 0));
          part_mma.accumulate_ = GMMA::ScaleOut::One;
        }
        warpgroup_commit_batch();
        ++issued;
      };
      const auto promote = [&](const StepScales& of_step, auto& from) {
        warpgroup_fence_operand(from);
        pipeline.consumer_release(finished);
        ++finished;
        const float factors[2] = {of_step.rows[0] * of_step.parts[0], of_step.rows[1] * of_step.parts[0]};
        CUTLASS_PRAGMA_UNROLL
        for (int i = 0; i < size(sums); ++i) sums(i) += from(i) * factors[i / 2 % 2];
      };
      issue(partial);
      if (!all.along_k) scales.load(params, of_rows, first_column);
      StepScales of_even = scales_of(0);
      StepScales of_odd;
      int step = 0;
      CUTLASS_PRAGMA_NO_UNROLL
      for (; step + 2 < k_steps; step += 2) {
        issue(other);
        of_odd = scales_of(step + 1);
        warpgroup_wait<1>();
        promote(of_even, partial);
        issue(partial);
        of_even = scales_of(step + 2);
        warpgroup_wait<1>();
        promote(of_odd, other);
      }
      if (step + 1 < k_steps) {
        issue(other);
        of_odd = scales_of(step + 1);
        warpgroup_wait<1>();
        promote(of_even, partial);
        warpgroup_wait<0>();
        promote(of_odd, other);
      } else {
        warpgroup_wait<0>();
        promote(of_even, partial);
      }
      if (!all.along_k) scales.apply(sums);
      add_bias<kColumns>(params, first_column, sums);
      return;
    }
    auto state = begin;
    pipeline.consumer_wait(state, pipeline.consumer_try_wait(state));
    TileScales<kColumns> scales;
    if (!all.along_k) scales.load(params, of_rows, first_column);
    StepScales next = scales_of(0);
    CUTLASS_PRAGMA_NO_UNROLL
    for (int step = 0; step < k_steps; ++step) {
      const StepScales of_step = next;
      pipeline.consumer_wait(state, pipeline.consumer_try_wait(state));
      if (step + 1 < k_steps) next = scales_of(step + 1);
      CUTLASS_PRAGMA_UNROLL
      for (int part = 0; part < kParts; ++part) {
        warpgroup_fence_operand(partial);
        warpgroup_arrive();
        part_mma.accumulate_ = GMMA::ScaleOut::Zero;
        CUTLASS_PRAGMA_UNROLL
        for (int i = 0; i < size<2>(a); ++i) {
          cute::gemm(part_mma, a(_, 0, i, state.index()), b(_, part, i, state.index()), partial(_, 0, 0));
          part_mma.accumulate_ = GMMA::ScaleOut::One;
        }
        warpgroup_commit_batch();
        warpgroup_wait<0>();
        warpgroup_fence_operand(partial);
        if (part + 1 == kParts) pipeline.consumer_release(state);
        const float factors[2] = {of_step.rows[0] * of_step.parts[part],
                                  of_step.rows[1] * of_step.parts[part]};
        CUTLASS_PRAGMA_UNROLL
        for (int g = 0; g < kPartColumns / 8; ++g) {
          CUTLASS_PRAGMA_UNROLL
          for (int pair = 0; pair < 2; ++pair) {
            CUTLASS_PRAGMA_UNROLL
            for (int row = 0; row < 2; ++row)
              sum_at(sums, part * (kPartColumns / 8) + g, row, pair) +=
                  sum_at(partial, g, row, pair) * factors[row];
          }
        }
      }
      ++state;
    }
    if (!all.along_k) scales.apply(sums);
    add_bias<kColumns>(params, first_column, sums);
  }
};

}  // namespace tandem::gemm::cuda
