#pragma once

// One native kernel from CUTLASS's parts: included by the files of instances/.

#include <cutlass/bfloat16.h>
#include <cutlass/epilogue/collective/collective_builder.hpp>
#include <cutlass/gemm/kernel/gemm_universal.hpp>

#include "gemm/cuda/sm90/async_input_kernel.hpp"
#include "gemm/cuda/sm90/async_input_mainloop.cuh"
#include "gemm/cuda/sm90/async_input_signals.cuh"
#include "gemm/cuda/sm90/product_grid.hpp"

namespace tandem::gemm::cuda {

/// By a warp: tells the thread that loads which patches of this CTA's tiles have come. Once a wait has given
/// up the others are skipped, and the kernel ends over what is there.
template <class Kernel>
__device__ void announce_arrivals(const typename Kernel::Params& params, std::uint32_t& announced) {
  const auto& mainloop = params.mainloop;
  typename Kernel::TileScheduler scheduler(params.scheduler);
  auto work = scheduler.initial_work_tile_info(typename Kernel::ClusterShape{});
  std::uint32_t before = 0;
  bool gave_up = false;
  while (work.is_valid()) {
    if (mainloop.patches.has(work.M_idx / mainloop.by_signal)) {
      announce_patches(mainloop.signals, mainloop.patches, work.M_idx, {announced, before}, gave_up);
      before += static_cast<std::uint32_t>(mainloop.patches.k_steps);
    }
    work = cute::get<0>(scheduler.fetch_next_work(work));
  }
}

/// Warps 1 and 2 of CUTLASS's cooperative kernel return from it at once, as its epilogue loads nothing: then
/// one pushes patches, if no CTAs behind those that multiply do nothing else, and the other looks for those
/// that come. All CTAs are resident, so nobody waits for one that has yet to start.
template <class Kernel>
__global__ void __launch_bounds__(Kernel::MaxThreadsPerBlock, 1)
    async_input_product(const __grid_constant__ typename Kernel::Params params,
                        const __grid_constant__ PatchPush push) {
  extern __shared__ char shared[];
  auto& mainloop = reinterpret_cast<typename Kernel::SharedStorage*>(shared)->tensors.mainloop;
  const int warp = cutlass::canonical_warp_idx_sync();
  const auto cta = static_cast<int>(blockIdx.y * gridDim.x + blockIdx.x);
  const int multiplying = static_cast<int>(gridDim.x * gridDim.y) - push.senders;
  if (cta >= multiplying) {
    send_patches(push, cta - multiplying, *reinterpret_cast<SenderStages*>(shared));
    return;
  }
  const bool pushes = warp == 1 && push.peers > 0 && push.senders == 0;
  if (pushes) begin_patches(push, cta, mainloop.stage);
  const bool has_patches = params.mainloop.patches.count > 0;
  if (has_patches) {
    if (threadIdx.x == 0) mainloop.announced = 0;
    __syncthreads();
  }
  Kernel kernel;
  kernel(params, shared);
  if (pushes) push_patches(push, cta, static_cast<int>(gridDim.x * gridDim.y), mainloop.stage);
  if (warp == 2 && has_patches) announce_arrivals<Kernel>(params, mainloop.announced);
}

template <class Element_, bool kColumnMajorB, int kColumns, int kClusterRows, int kClusterColumns>
struct AsyncInputInstance {
  using Element = Element_;
  using Tile = cute::Shape<cute::_128, cute::Int<kColumns>, cute::_64>;
  using Cluster = cute::Shape<cute::Int<kClusterRows>, cute::Int<kClusterColumns>, cute::_1>;
  using RowMajor = cutlass::layout::RowMajor;
  using LayoutB = cute::conditional_t<kColumnMajorB, cutlass::layout::ColumnMajor, RowMajor>;
  using Epilogue = typename cutlass::epilogue::collective::CollectiveBuilder<
      cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, Tile, Cluster,
      cutlass::epilogue::collective::EpilogueTileAuto, float, float, void, RowMajor, 8, Element, RowMajor, 8,
      cutlass::epilogue::TmaWarpSpecializedCooperative>::CollectiveOp;
  using Mainloop = typename cutlass::gemm::collective::CollectiveBuilder<
      cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, Element, RowMajor, 8, Element, LayoutB, 8, float,
      Tile, Cluster,
      cutlass::gemm::collective::StageCountAutoCarveout<static_cast<int>(
          sizeof(typename Epilogue::SharedStorage))>,
      cutlass::gemm::KernelTmaWarpSpecializedCooperative>::CollectiveOp;
  using Kernel =
      cutlass::gemm::kernel::GemmUniversal<cute::Shape<int, int, int, int>, AsyncInputMainloop<Mainloop>,
                                           Epilogue, tandem::gemm::ChunkTiles>;
  static_assert(Kernel::MaxThreadsPerBlock == kAsyncInputThreads && kAsyncInputThreads == 32 * kSenderWarps);
  static_assert(sizeof(SenderStages) <= Kernel::SharedStorageSize);
  static_assert(Kernel::SharedStorageSize <= cutlass::gemm::collective::detail::sm90_smem_capacity_bytes);
  static constexpr Tiling kTiling = async_input_tiling(kColumns, kClusterRows, kClusterColumns);

  static typename Kernel::Params params_of(const AsyncInputLaunch& what, const ProductGrid& grid);
  static cudaError_t launch(const AsyncInputLaunch& what, cudaStream_t stream);
};

template <class E, bool kT, int kN, int kR, int kC>
typename AsyncInputInstance<E, kT, kN, kR, kC>::Kernel::Params
AsyncInputInstance<E, kT, kN, kR, kC>::params_of(const AsyncInputLaunch& what, const ProductGrid& grid) {
  const int n = static_cast<int>(what.n);
  const int k = static_cast<int>(what.k);
  const tandem::symm::ChunkSignals signals = signals_of(what);
  typename Kernel::MainloopArguments mainloop;
  mainloop.ptr_A = static_cast<const E*>(what.a);
  mainloop.dA = {what.k, cute::_1{}, 0};
  mainloop.ptr_B = static_cast<const E*>(what.b);
  if constexpr (kT) {
    mainloop.dB = {what.k, cute::_1{}, 0};
  } else {
    mainloop.dB = {cute::_1{}, what.n, 0};
  }
  mainloop.arriving = {static_cast<const E*>(what.a), grid.batch_rows, grid.batches};
  mainloop.complete = {nullptr, 0, 0};
  if (grid.complete_batches > 0)
    mainloop.complete = {static_cast<const E*>(what.complete), grid.complete_rows, grid.complete_batches};
  mainloop.tiles_per_signal = grid.tiles_per_signal;
  mainloop.signals = signals;
  mainloop.patches = what.patches;

  typename Kernel::EpilogueArguments epilogue{};
  epilogue.ptr_D = static_cast<E*>(what.out);
  epilogue.dD = {what.n, cute::_1{}, std::int64_t{grid.batch_rows} * what.n};
  typename Kernel::TileSchedulerArguments scheduler{};
  scheduler.order = grid.order;
  scheduler.tiles_per_chunk = grid.tiles_per_chunk;
  scheduler.tiles_per_batch = grid.tiles_per_batch;
  scheduler.num_clusters = grid.num_clusters;
  scheduler.signals = signals;

  const cutlass::KernelHardwareInfo hardware{0, grid.num_clusters * kR * kC, grid.num_clusters};
  const auto problem = cute::make_shape(static_cast<int>(what.rows), n, k, 1);
  return {cutlass::gemm::GemmUniversalMode::kGemm,
          problem,
          Kernel::CollectiveMainloop::to_underlying_arguments(problem, mainloop, nullptr),
          remembered({what.out, {grid.batch_rows, n, grid.batches}},
                     [&] {
                       return Epilogue::to_underlying_arguments(
                           cute::make_shape(grid.batch_rows, n, k, grid.batches), epilogue, nullptr);
                     }),
          hardware,
          Kernel::TileScheduler::to_underlying_arguments(problem, Tile{}, Cluster{}, hardware, scheduler),
          nullptr};
}

template <class E, bool kT, int kN, int kR, int kC>
cudaError_t AsyncInputInstance<E, kT, kN, kR, kC>::launch(const AsyncInputLaunch& what, cudaStream_t stream) {
  const ProductGrid grid = product_grid(what, kTiling);
  const auto params = params_of(what, grid);
  PatchPush push = what.push;
  push.senders = grid.senders;
  cudaLaunchAttribute cluster{};
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim = {kR, kC, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(kR, kC * grid.num_clusters + grid.senders / kR);
  config.blockDim = Kernel::get_block_shape();
  config.dynamicSmemBytes = Kernel::SharedStorageSize;
  config.stream = stream;
  config.attrs = &cluster;
  config.numAttrs = 1;
  return cudaLaunchKernelEx(&config, async_input_product<Kernel>, params, push);
}

/// What an instance's file returns.
template <class Instance>
AsyncInputKernel async_input_kernel(const char* name, DType dtype, bool b_is_column_major) {
  return {.name = name,
          .dtype = dtype,
          .b_is_column_major = b_is_column_major,
          .tiling = Instance::kTiling,
          .kernel = reinterpret_cast<const void*>(&async_input_product<typename Instance::Kernel>),
          .shared_bytes = Instance::Kernel::SharedStorageSize,
          .launch = &Instance::launch};
}

}  // namespace tandem::gemm::cuda
