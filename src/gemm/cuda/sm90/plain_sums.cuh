#pragma once

#include "gemm/cuda/sm90/async_input_kernel.hpp"
#include "gemm/cuda/sm90/product_grid.hpp"

namespace tandem::gemm::cuda {

// How the warps that multiply make the sums of a tile: each kernel has one of these ways. Others are in
// scaled_sums.cuh and promoted_sums.cuh.

/// Sums as they are.
template <class Mainloop>
struct PlainSums {
  static constexpr SumsKind kKind = SumsKind::kPlain;
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

}  // namespace tandem::gemm::cuda
