#pragma once

// The tile scheduler of CUTLASS 4 (Hopper) for products whose left operand arrives in chunks: give
// PersistentAsyncInput to cutlass::gemm::kernel::GemmUniversal as its tile scheduler tag, with any mainloop
// and epilogue of CUTLASS's; a tile is returned to them once its chunk's signal is there. CUTLASS's headers
// come before this one. Example: examples/cuda/async_input_gemm.cu.
//
// Compile with --expt-relaxed-constexpr: the order is constexpr code for hosts.

#include <cstdint>
#include <cutlass/gemm/kernel/tile_scheduler.hpp>
#include <tandem/gemm/tile_order.hpp>
#include <tandem/symm/chunk_signals.cuh>

namespace tandem::gemm {

/// The tile scheduler's tag.
struct PersistentAsyncInput {};

/// What ChunkTileScheduler goes by.
struct ChunkTileParams : cutlass::gemm::kernel::detail::PersistentTileSchedulerSm90::Params {
  TileOrder order;
  int tiles_per_chunk;
  int tiles_per_batch;
  int num_clusters;
  Divisor cluster_columns;
  symm::ChunkSignals signals;
};

/// The order alone, without waits, for kernels that wait elsewhere. Takes the clusters of the order one after
/// the other: cluster c of the grid those of number c, c + grid,
/// ... Launch dim3(cluster rows, cluster columns * clusters), no more clusters than are resident together.
///
/// A work tile is (row of tiles, column of tiles, batch): see place_of(). The tensor maps of a and out, of
/// [chunk rows, columns, chunks], cut the last tile of a batch off. A cluster may lie in two batches where
/// they are taken as one chunk.
///
/// `Kept` is ChunkTileParams, or a reference to them. Those that are referred to must outlive the scheduler,
/// as a kernel's own parameters do.
template <class Kept>
class BasicChunkTileScheduler : public cutlass::gemm::kernel::detail::PersistentTileSchedulerSm90 {
  using Base = cutlass::gemm::kernel::detail::PersistentTileSchedulerSm90;

 public:
  using Params = ChunkTileParams;
  struct Arguments : Base::Arguments {
    TileOrder order;
    int tiles_per_chunk;
    int tiles_per_batch;  ///< > 0: of a single chunk of batches; `tiles_per_chunk` is 0 then
    int num_clusters;     ///< of the grid
    symm::ChunkSignals signals;
  };

  CUTLASS_HOST_DEVICE BasicChunkTileScheduler() {}
  CUTLASS_DEVICE explicit BasicChunkTileScheduler(const Params& params)
      : Base(params), params_(params), index_(static_cast<int>(blockIdx.y) / params.cluster_columns) {}

  template <class ProblemShape, class TileShape, class ClusterShape>
  static Params to_underlying_arguments(ProblemShape problem, TileShape tile, ClusterShape cluster,
                                        const cutlass::KernelHardwareInfo& hardware, const Arguments& args,
                                        void* workspace = nullptr, std::uint32_t epilogue_subtiles = 1,
                                        std::uint32_t ktile_start_alignment = 1) {
    Params params;
    static_cast<Base::Params&>(params) = Base::to_underlying_arguments(
        problem, tile, cluster, hardware, args, workspace, epilogue_subtiles, ktile_start_alignment);
    params.order = args.order;
    params.tiles_per_chunk = args.tiles_per_chunk;
    params.tiles_per_batch = args.tiles_per_batch;
    params.num_clusters = args.num_clusters;
    params.cluster_columns = Divisor(static_cast<int>(cute::size<1>(cluster)));
    params.signals = args.signals;
    return params;
  }
  template <class... Arguments>
  static bool can_implement(const Arguments&...) {
    return true;
  }
  template <class ProblemShape, class TileShape, class ClusterShape>
  static dim3 get_grid_shape(const Params& params, ProblemShape, TileShape, ClusterShape cluster,
                             cutlass::KernelHardwareInfo, const Arguments& = Arguments{}, bool = true) {
    return dim3(cute::size<0>(cluster), cute::size<1>(cluster) * params.num_clusters, 1);
  }

  CUTLASS_DEVICE WorkTileInfo get_current_work() const {
    if (index_ >= params_.order.num_clusters()) return WorkTileInfo::invalid_work_tile();
    const int column = static_cast<int>(blockIdx.y) % params_.cluster_columns;
    const TilePlace place = place_of(params_.order.tile(index_, static_cast<int>(blockIdx.x), column),
                                     params_.tiles_per_chunk, params_.tiles_per_batch);
    return {place.row, place.column, place.batch, true};
  }
  /// Whether the current tile is this CTA's last one.
  CUTLASS_DEVICE bool is_last_work() const {
    return index_ + params_.num_clusters >= params_.order.num_clusters();
  }
  CUTLASS_DEVICE void advance_to_next_work(std::uint32_t count = 1) {
    index_ += params_.num_clusters * static_cast<int>(count);
  }

 protected:
  Kept params_;
  int index_ = 0;
};
using ChunkTileScheduler = BasicChunkTileScheduler<ChunkTileParams>;

/// Every warp that takes a tile waits for its chunk here, so nothing else of the kernel has to know of
/// chunks. Once a wait has given up the others are skipped and the kernel ends over what is there.
class PersistentAsyncInputScheduler : public ChunkTileScheduler {
 public:
  using ChunkTileScheduler::ChunkTileScheduler;

  CUTLASS_DEVICE WorkTileInfo get_current_work() const {
    const WorkTileInfo work = ChunkTileScheduler::get_current_work();
    if (!work.is_valid()) return work;
    const int chunk = params_.tiles_per_chunk == 0 ? work.L_idx : work.M_idx / params_.tiles_per_chunk;
    // One lane polls for the warp; all acquire, since any may issue the loads.
    if (chunk != awaited_ && !gave_up_ && !params_.signals.is_complete(chunk)) {
      bool has_come = true;
      if (cute::elect_one_sync()) has_come = symm::await_chunk(params_.signals, chunk);
      gave_up_ = !__all_sync(0xffffffffU, has_come);
      if (!gave_up_) symm::acquire_chunk(params_.signals, chunk);
    }
    awaited_ = chunk;
    return work;
  }
  template <class ClusterShape>
  CUTLASS_DEVICE WorkTileInfo initial_work_tile_info(ClusterShape) {
    return get_current_work();
  }
  CUTLASS_DEVICE auto fetch_next_work(WorkTileInfo) {
    advance_to_next_work();
    return cute::make_tuple(get_current_work(), true);
  }
  template <class Pipeline, class State>
  CUTLASS_DEVICE auto fetch_next_work(WorkTileInfo work, Pipeline&, State&) {
    return fetch_next_work(work);
  }

 private:
  mutable int awaited_ = -1;
  mutable bool gave_up_ = false;
};

}  // namespace tandem::gemm

namespace cutlass::gemm::kernel::detail {

template <class TileShape, class ClusterShape, std::uint32_t kStages>
struct TileSchedulerSelector<tandem::gemm::PersistentAsyncInput, arch::Sm90, TileShape, ClusterShape,
                             kStages> {
  using Scheduler = tandem::gemm::PersistentAsyncInputScheduler;
};

}  // namespace cutlass::gemm::kernel::detail
