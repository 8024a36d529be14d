#pragma once

// One native kernel from CUTLASS's parts.

#include <cutlass/bfloat16.h>
#include <cutlass/float8.h>

#include "gemm/cuda/sm90/async_input_kernel.hpp"
#include "gemm/cuda/sm90/async_input_product.cuh"
#include "gemm/cuda/sm90/async_input_signals.cuh"
#include "gemm/cuda/sm90/product_grid.hpp"

namespace tandem::gemm::cuda {

/// CTAs behind those that multiply send pieces, if there are any; they do nothing else.
template <class Product>
__global__ void __launch_bounds__(Product::kThreads, 1)
    async_input_product(const __grid_constant__ typename Product::Params params) {
  extern __shared__ char shared[];
  const auto cta = static_cast<int>(blockIdx.y * gridDim.x + blockIdx.x);
  const int multiplying = static_cast<int>(gridDim.x * gridDim.y) - params.push.senders;
  if (cta >= multiplying) {
    send_pieces(params.push, cta - multiplying, *reinterpret_cast<SenderStages*>(shared));
  } else {
    auto& shared_of_product = *reinterpret_cast<typename Product::Shared*>(shared);
    if constexpr (Product::kCanExchange) {
      Product::run_here(params, shared_of_product, cta, multiplying);
    } else {
      Product::run(params, shared_of_product, cta, multiplying);
    }
  }
}

/// `What`: see Multiplied; `OneTile`: an InstanceTile.
template <class What, class OneTile>
struct AsyncInputInstance {
  using Element = typename What::Element;
  using Out = typename What::Out;
  static constexpr int kAlignment = 16 / static_cast<int>(sizeof(Element));
  using Tile = cute::Shape<cute::_128, cute::Int<OneTile::kColumns>,
                           cute::Int<PieceGrid::kStepBytes / static_cast<int>(sizeof(Element))>>;
  using Cluster =
      cute::Shape<cute::Int<OneTile::kClusterRows>, cute::Int<OneTile::kClusterColumns>, cute::_1>;
  using RowMajor = cutlass::layout::RowMajor;
  using LayoutB = cute::conditional_t<What::kBIsColumnMajor, cutlass::layout::ColumnMajor, RowMajor>;
  // Of f8 the plain mainloop has this name; what it adds up is for `Sums` to say.
  using Schedule = cute::conditional_t<sizeof(Element) == 1,
                                       cutlass::gemm::KernelTmaWarpSpecializedCooperativeFP8FastAccum,
                                       cutlass::gemm::KernelTmaWarpSpecializedCooperative>;
  using Mainloop = typename cutlass::gemm::collective::CollectiveBuilder<
      cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, Element, RowMajor, kAlignment, Element, LayoutB,
      kAlignment, float, Tile, Cluster,
      cutlass::gemm::collective::StageCountAutoCarveout<kFewestStagedPieces * PieceGrid::kBytes + 1024>,
      Schedule>::CollectiveOp;
  using Product = AsyncInputProduct<AsyncInputMainloop<Mainloop>, Out, What::template Sums>;
  static_assert(Product::kThreads == kAsyncInputThreads && kAsyncInputThreads == 32 * kSenderWarps);
  static constexpr int kSharedBytes =
      static_cast<int>(std::max(sizeof(SenderStages), sizeof(typename Product::Shared)));
  static_assert(kSharedBytes <= cutlass::gemm::collective::detail::sm90_smem_capacity_bytes);
  static constexpr SumsKind kSums = Product::Sums::kKind;
  static const void* kernel() { return reinterpret_cast<const void*>(&async_input_product<Product>); }

  static typename Product::Params params_of(const AsyncInputLaunch& what, const ProductGrid& grid);
  static cudaError_t launch(const AsyncInputLaunch& what, cudaStream_t stream);
};

template <class What, class OneTile>
typename AsyncInputInstance<What, OneTile>::Product::Params AsyncInputInstance<What, OneTile>::params_of(
    const AsyncInputLaunch& what, const ProductGrid& grid) {
  const int n = static_cast<int>(what.n);
  const int k = static_cast<int>(what.k);
  const tandem::symm::ChunkSignals signals = signals_of(what);
  typename Product::Mainloop::Arguments mainloop;
  mainloop.ptr_B = static_cast<const Element*>(what.b);
  if constexpr (What::kBIsColumnMajor) {
    mainloop.dB = {what.k, cute::_1{}, 0};
  } else {
    mainloop.dB = {cute::_1{}, what.n, 0};
  }
  mainloop.arriving = {static_cast<const Element*>(what.a), grid.batch_rows, grid.batches};
  mainloop.complete = {nullptr, 0, 0};
  if (grid.complete_batches > 0)
    mainloop.complete = {static_cast<const Element*>(what.complete), grid.complete_rows,
                         grid.complete_batches};
  mainloop.tiles_per_signal = grid.tiles_per_signal;
  mainloop.signals = signals;
  mainloop.pieces = what.pieces;
  const int k_steps = cute::ceil_div(k, static_cast<int>(cute::size<2>(Tile{})));
  mainloop.scales_step = !what.scales.rows_arrive ? -1 : what.scales.along_k ? 0 : k_steps - 1;
  mainloop.shard_rows = what.partials.batch_rows();

  ChunkTileScheduler::Arguments scheduler{};
  scheduler.order = grid.order;
  scheduler.tiles_per_chunk = grid.tiles_per_chunk;
  scheduler.tiles_per_batch = grid.tiles_per_batch;
  scheduler.num_clusters = grid.num_clusters;
  scheduler.signals = signals;

  const cutlass::KernelHardwareInfo hardware{
      0, grid.num_clusters * OneTile::kClusterRows * OneTile::kClusterColumns, grid.num_clusters};
  const auto problem = cute::make_shape(static_cast<int>(what.rows), n, k, 1);
  return {problem,
          k_steps,
          Product::Mainloop::to_underlying_arguments(problem, mainloop),
          {static_cast<Out*>(what.out), n, grid.batch_rows},
          partials_of(what, grid.num_clusters * OneTile::kClusterRows * OneTile::kClusterColumns),
          ChunkTileScheduler::to_underlying_arguments(problem, Tile{}, Cluster{}, hardware, scheduler),
          grid.push,
          Product::Sums::params_of(what, grid),
          Product::Epilogue::params_of(what, grid)};
}

template <class What, class OneTile>
cudaError_t AsyncInputInstance<What, OneTile>::launch(const AsyncInputLaunch& what, cudaStream_t stream) {
  constexpr int kR = OneTile::kClusterRows;
  constexpr int kC = OneTile::kClusterColumns;
  const ProductGrid grid = product_grid(what, OneTile::kTiling, Product::kStagedPieces);
  const auto params = params_of(what, grid);
  cudaLaunchAttribute attributes[2] = {};
  attributes[0].id = cudaLaunchAttributeClusterDimension;
  attributes[0].val.clusterDim = {kR, kC, 1};
  attributes[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[1].val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(kR, kC * grid.num_clusters + grid.push.senders / kR);
  config.blockDim = dim3(Product::kThreads);
  config.dynamicSmemBytes = kSharedBytes;
  config.stream = stream;
  config.attrs = attributes;
  config.numAttrs = what.begins_early ? 2 : 1;
  return cudaLaunchKernelEx(&config, async_input_product<Product>, params);
}

}  // namespace tandem::gemm::cuda
