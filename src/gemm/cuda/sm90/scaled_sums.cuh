#pragma once

#include "gemm/cuda/sm90/tile_scales.cuh"

namespace tandem::gemm::cuda {

/// Sums over all of k in the registers of the tensor cores, scaled at the end. See plain_sums.cuh.
template <class Mainloop>
struct ScaledSums {
  static constexpr SumsKind kKind = SumsKind::kScaled;
  static constexpr int kColumns = static_cast<int>(cute::size<1>(typename Mainloop::TileShape{}));
  using Params = ScalesOfRows::Params;
  static Params params_of(const AsyncInputLaunch& what, const ProductGrid& grid) {
    return ScalesOfRows::params_of(what, grid);
  }

  template <class Work, class Sums>
  CUTLASS_DEVICE static void make(const Params& params, const typename Mainloop::Params& mainloop_params,
                                  Mainloop& mainloop, typename Mainloop::MainloopPipeline& pipeline,
                                  typename Mainloop::PipelineState& state, const Work& work, int k_steps,
                                  int thread, typename Mainloop::TensorStorage& shared, Sums& sums) {
    const ScalesOfRows of_rows(params, work, mainloop_params.is_complete(work), first_row_of(thread));
    pipeline.consumer_wait(state, pipeline.consumer_try_wait(state));
    TileScales<kColumns> scales;
    scales.load_columns(params, work.N_idx * kColumns);
    // Those that arrive may do so until the last stage is announced.
    const bool rows_arrive = params.scales.rows_arrive;
    if (!rows_arrive) scales.load_rows(of_rows);
    mainloop.mma(pipeline, state, sums, k_steps, thread, shared, mainloop_params);
    mainloop.mma_tail(pipeline, state, k_steps);
    if (rows_arrive) scales.load_rows(of_rows);
    scales.apply(sums);
  }
};

}  // namespace tandem::gemm::cuda
