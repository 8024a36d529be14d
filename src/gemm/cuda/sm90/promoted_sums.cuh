#pragma once

#include "gemm/cuda/sm90/tile_scales.cuh"

namespace tandem::gemm::cuda {

/// What sums of one step of k, 128, are multiplied by: a number for each of a thread's two rows, and every
/// 128 columns of a tile. The four threads of a quad have the same rows. Each loads the scales of every
/// fourth step, one to four steps ahead, and they exchange the products by shuffles.
template <int kColumns>
class StepFactors {
 public:
  static constexpr int kTogether = 4;
  static constexpr int kBlocks = kColumns / 128;
  using Values = float[kBlocks][2];

  template <class Work>
  CUTLASS_DEVICE StepFactors(const ScalesOfRows::Params& params, const ScalesOfRows& of_rows,
                             const Work& work, int k_steps) {
    const SumScales& scales = params.scales;
    const int own = static_cast<int>(threadIdx.x) % kTogether;
    left_ = scales.along_k ? k_steps - own : 0;
    has_rows_ = of_rows.rows[0] != nullptr;
    row_advance_ = kTogether * of_rows.block_stride;
    CUTLASS_PRAGMA_UNROLL
    for (int row = 0; row < 2; ++row) row_at_[row] = of_rows.rows[row] + own * of_rows.block_stride;
    has_blocks_ = scales.columns != nullptr;
    block_advance_ = kTogether * scales.block_stride;
    CUTLASS_PRAGMA_UNROLL
    for (int i = 0; i < kBlocks; ++i) {
      const int block = min(work.N_idx * kBlocks + i, (params.n - 1) / 128);
      block_at_[i] = scales.columns + block * scales.column_stride + own * scales.block_stride;
      blocks_[i] = 1.0F;
    }
  }

  /// The scales of the next kTogether steps, which need not all exist. take() makes factors of them.
  CUTLASS_DEVICE void load() {
    if (left_ <= 0) return;
    left_ -= kTogether;
    if (has_rows_) {
      CUTLASS_PRAGMA_UNROLL
      for (int row = 0; row < 2; ++row) {
        rows_[row] = ScalesOfRows::load(row_at_[row]);
        row_at_[row] += row_advance_;
      }
    }
    if (has_blocks_) {
      CUTLASS_PRAGMA_UNROLL
      for (int i = 0; i < kBlocks; ++i) {
        blocks_[i] = *block_at_[i];
        block_at_[i] += block_advance_;
      }
    }
  }
  CUTLASS_DEVICE void take() {
    CUTLASS_PRAGMA_UNROLL
    for (int block = 0; block < kBlocks; ++block) {
      CUTLASS_PRAGMA_UNROLL
      for (int row = 0; row < 2; ++row) current_[block][row] = rows_[row] * blocks_[block];
    }
  }
  /// By all lanes of a warp: of one of the steps that were taken last.
  CUTLASS_DEVICE void get(int step, Values& values) const {
    CUTLASS_PRAGMA_UNROLL
    for (int block = 0; block < kBlocks; ++block) {
      CUTLASS_PRAGMA_UNROLL
      for (int row = 0; row < 2; ++row)
        values[block][row] = __shfl_sync(0xffffffffU, current_[block][row], step % kTogether, kTogether);
    }
  }

 private:
  // Of the own step that load() comes to next.
  const float* row_at_[2];
  const float* block_at_[kBlocks];
  std::int64_t row_advance_;
  std::int64_t block_advance_;
  int left_;  ///< steps from there to the last one
  bool has_rows_;
  bool has_blocks_;
  float rows_[2] = {1.0F, 1.0F};
  float blocks_[kBlocks];
  Values current_;
};

/// Sums over 128 of k, which are scaled and added up in f32. The tensor cores keep f8 sums in fewer bits than
/// f32 has. Registers do not hold two sums of a tile: what a step adds is made for 128 columns at a time.
/// While one warp group adds up, the other has the tensor cores. See plain_sums.cuh.
template <class Mainloop>
struct PromotedSums {
  static constexpr SumsKind kKind = SumsKind::kPromoted;
  static constexpr int kColumns = static_cast<int>(cute::size<1>(typename Mainloop::TileShape{}));
  static constexpr int kPartColumns = 128;
  static constexpr int kParts = kColumns / kPartColumns;
  static_assert(kColumns % kPartColumns == 0 && cute::size<2>(typename Mainloop::TileShape{}) == 128,
                "a part of a step has one scale of b by blocks");
  using Params = ScalesOfRows::Params;
  static Params params_of(const AsyncInputLaunch& what, const ProductGrid& grid) {
    return ScalesOfRows::params_of(what, grid);
  }

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

    const auto issue = [&](int part, const auto& at) {
      warpgroup_fence_operand(partial);
      warpgroup_arrive();
      part_mma.accumulate_ = GMMA::ScaleOut::Zero;
      CUTLASS_PRAGMA_UNROLL
      for (int i = 0; i < size<2>(a); ++i) {
        cute::gemm(part_mma, a(_, 0, i, at.index()), b(_, part, i, at.index()), partial(_, 0, 0));
        part_mma.accumulate_ = GMMA::ScaleOut::One;
      }
      warpgroup_commit_batch();
    };
    const auto promote = [&](int part, const float(&factors)[2]) {
      warpgroup_fence_operand(partial);
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
    };

    const ScalesOfRows of_rows(params, work, mainloop_params.is_complete(work), first_row_of(thread));
    StepFactors<kColumns> factors(params, of_rows, work, k_steps);
    typename StepFactors<kColumns>::Values now;
    auto state = begin;
    pipeline.consumer_wait(state, pipeline.consumer_try_wait(state));
    factors.load();
    issue(0, state);
    factors.take();
    factors.load();
    int step = 0;
    // All that a step needs is there before its first wait. From a wait to the next products there are only
    // sums: the tensor cores may have nothing else to do then.
    CUTLASS_PRAGMA_NO_UNROLL
    while (true) {
      factors.get(step, now);
      if (step % factors.kTogether == factors.kTogether - 1) {
        factors.take();
        factors.load();
      }
      CUTLASS_PRAGMA_UNROLL
      for (int part = 0; part + 1 < kParts; ++part) {
        warpgroup_wait<0>();
        promote(part, now[part]);
        issue(part + 1, state);
      }
      if (step + 1 == k_steps) break;
      auto next = state;
      ++next;
      pipeline.consumer_wait(next, pipeline.consumer_try_wait(next));
      warpgroup_wait<0>();
      pipeline.consumer_release(state);
      promote(kParts - 1, now[kParts - 1]);
      issue(0, next);
      state = next;
      ++step;
    }
    warpgroup_wait<0>();
    pipeline.consumer_release(state);
    promote(kParts - 1, now[kParts - 1]);
    if (!params.scales.along_k) {
      TileScales<kColumns> scales;
      scales.load_rows(of_rows);
      scales.load_columns(params, work.N_idx * kColumns);
      scales.apply(sums);
    }
  }
};

}  // namespace tandem::gemm::cuda
