#pragma once

// What the warps of a native kernel do, with CUTLASS's mainloop.

#include <cutlass/arch/barrier.h>
#include <cutlass/arch/reg_reconfig.h>

#include <algorithm>
#include <cstdint>
#include <tandem/gemm/async_input_scheduler.cuh>

#include "gemm/cuda/sm90/async_input_mainloop.cuh"
#include "gemm/cuda/sm90/direct_stores.cuh"
#include "gemm/cuda/sm90/partial_exchange.cuh"
#include "gemm/cuda/sm90/tile_epilogue.cuh"

namespace tandem::gemm::cuda {

/// Where the threads of a cluster meet once: all arrive, and wait before they use what others have set up.
/// One warp of a CTA uses nothing: it waits at its end, when there is nothing to wait for, since who arrives
/// has to. For a cluster of one CTA the instructions of clusters become a wait of all threads, for which
/// nobody may be late: there it is a barrier of the CTA, of all `kThreads` but that warp's.
template <int kCtas, int kThreads>
struct ClusterMeeting {
  __device__ static void arrive() {
    if constexpr (kCtas > 1) cute::cluster_arrive_relaxed();
  }
  /// Behind arrive().
  __device__ static void wait() {
    if constexpr (kCtas > 1) {
      cute::cluster_wait();
    } else {
      // Warps come from different places, which the form that is not aligned allows beyond doubt.
      cutlass::arch::NamedBarrier(kThreads, kBarrier).arrive_and_wait_unaligned();
    }
  }
  /// In place of wait(), by the warp that uses nothing.
  __device__ static void leave() {
    if constexpr (kCtas > 1) cute::cluster_wait();
  }

 private:
  static constexpr std::uint32_t kBarrier = 0;  ///< of those that CUTLASS leaves to others
};

/// Pieces on their way out that there is room for at least.
inline constexpr int kFewestStagedPieces = 4;

/// A native kernel's CTA:
///
///   warp group 0   40, 56 or 64 registers a thread
///     kLoader      one thread issues all tensor loads, so it alone waits for chunks, and for the pieces
///                  that another warp announces
///     kPusher      pushes pieces of the own shard, if no CTAs do nothing else: see piece_exchange.cuh; or
///                  partials of peers' tiles: see partial_exchange.cuh
///     kPoller      looks for pieces, or partials of own tiles, that come, and announces them
///     kBarrierInit sets up the barriers between those that load and those that multiply, and outlives the
///                  kernel before, where that lets this one begin early (device/cuda/next_kernel.cuh)
///   warp groups    232, 224 or 216 registers a thread; each multiplies half of the rows of a tile, and
///   1 and 2        stores them
///
/// The two groups need not be at the same step, nor at the same tile: while one rounds and stores, the other
/// has the tensor cores for itself.
///
/// Shared memory: as many stages of (a, b) tiles as fit; pieces on their way out get of the rest what they
/// have use for.
///
/// CUTLASS's cooperative kernel does the same in an order in which everybody waits until all is set up. Until
/// a kernel's first loads and stores are on their way it does hardly more than fetch instructions, each of
/// which runs once: so who loads or pushes runs as few as can be, and others run theirs meanwhile.
///
/// Memory order: the thread that sets barriers up fences them, and the warp that announces sets its word to
/// zero and has a fence, before they arrive at the meeting. Whoever uses what another warp has set up
/// waits there, which acquires. Towards its end a CTA waits until the others of its cluster have read what it
/// sent into their memory.
///
/// All CTAs are resident once the kernel before has ended, which waits for none of them. So nobody waits
/// without end for one that has yet to start.
template <class Mainloop_, class Out, template <class> class Sums_>
struct AsyncInputProduct {
  using Mainloop = Mainloop_;
  using Sums = Sums_<Mainloop>;
  using Stores = DirectStores<Out>;
  using Tile = typename Mainloop::TileShape;
  using Cluster = typename Mainloop::DispatchPolicy::ClusterShape;
  using TiledMma = typename Mainloop::TiledMma;
  using Pipeline = typename Mainloop::MainloopPipeline;
  using Epilogue = TileEpilogue<static_cast<int>(cute::size<1>(Tile{})), Out>;

  struct Params {
    cute::Shape<int, int, int, int> problem;  ///< rows, columns, k, 1
    int k_steps;
    typename Mainloop::Params mainloop;
    typename Stores::Params stores;
    PartialExchange partials;
    ChunkTileParams scheduler;
    PiecePush push;
    typename Sums::Params sums;
    typename Epilogue::Params epilogue;
  };
  /// Swizzles repeat after 1 KiB, and the first stage begins with one.
  struct alignas(1024) Tiles {
    typename Mainloop::TensorStorage tensors;
    alignas(16) typename Mainloop::PipelineStorage pipeline;
    std::uint32_t announced;
    PartialCounts partials;
  };
  static constexpr int kStagedPieces = std::min<int>(
      kMostPiecesTogether,
      (cutlass::gemm::collective::detail::sm90_smem_capacity_bytes - sizeof(Tiles)) / PieceGrid::kBytes);
  struct Shared : Tiles {
    PieceStage<kStagedPieces> stage;
  };
  static_assert(kStagedPieces >= kFewestStagedPieces, "with few behind a fence the fences set the pace");
  static_assert(kFewestStagedPieces * PieceGrid::kBytes >= 2 * PartialGrid::kBytes);

  static constexpr bool kCanExchange = can_exchange_partials(
      static_cast<int>(cute::size<1>(Tile{})), static_cast<int>(cute::size(Cluster{})), Sums::kKind);
  // Where sums have many uses a copy of the order's parameters would take their registers.
  using Scheduler =
      BasicChunkTileScheduler<cute::conditional_t<kCanExchange, const ChunkTileParams&, ChunkTileParams>>;
  // Who exchanges partials needs more of them than who sends pieces. Scales need some beside the sums.
  static constexpr bool kScales = Sums::kKind != SumsKind::kPlain;
  static constexpr int kLoadRegisters = kCanExchange ? (kScales ? 56 : 64) : 40;
  static constexpr int kMultiplyRegisters = kCanExchange ? (kScales ? 224 : 216) : 232;
  static constexpr int kMultiplyThreads = static_cast<int>(cute::size(TiledMma{}));
  static constexpr int kGroupThreads = cutlass::NumThreadsPerWarpGroup;
  static constexpr int kThreads = kGroupThreads + kMultiplyThreads;
  static constexpr int kTileRows = static_cast<int>(cute::size<0>(Tile{}));
  static constexpr int kTileColumns = static_cast<int>(cute::size<1>(Tile{}));
  static constexpr int kSumsOfThread = kTileRows * kTileColumns / kMultiplyThreads;
  static_assert(kMultiplyThreads == 2 * kGroupThreads && kTileRows == 128 && kSumsOfThread < 208,
                "two groups, each of half of the rows, whose sums leave registers for all else");

  using Meeting = ClusterMeeting<static_cast<int>(cute::size(Cluster{})), kThreads - 32>;

  enum Warp { kLoader = 0, kPusher = 1, kPoller = 2, kBarrierInit = 3, kWarpsOfGroup = 4 };

  /// By all threads of a CTA that multiplies, number `cta` of `num_ctas`.
  __device__ static void run(const Params& params, Shared& shared, int cta, int num_ctas) {
    run_here(params, shared, cta, num_ctas);
  }
  /// The same, always inlined. Where sums have many uses a compiler would make it a call, and the tensor
  /// cores wait at each instruction of a function that is called.
  __device__ __forceinline__ static void run_here(const Params& params, Shared& shared, int cta,
                                                  int num_ctas) {
    const int warp = cutlass::canonical_warp_idx_sync();
    if (warp >= kWarpsOfGroup) {
      if constexpr (kCanExchange) {
        multiply_here(params, shared);
      } else {
        multiply(params, shared);
      }
      return;
    }
    cutlass::arch::warpgroup_reg_dealloc<kLoadRegisters>();
    if (warp == kLoader) {
      load(params, shared);
      return;
    }
    const bool looks = warp == kPoller && params.mainloop.pieces.count > 0;
    if (warp == kBarrierInit) prepare(params, shared);
    if (looks) begin_announcing(shared.announced);
    Meeting::arrive();
    if (warp == kPusher) {
      if (params.push.peers > 0 && params.push.senders == 0)
        push_pieces(params.push, cta, num_ctas, shared.stage.data);
      if (params.partials.is_any()) push_partials(params, shared);
      Meeting::leave();
      return;
    }
    Meeting::wait();
    if (looks) look(params, shared.announced);
    if (warp == kPoller && params.partials.is_any()) await_partials(params, shared);
    if (warp == kBarrierInit) tandem::cuda::await_kernel_before();
  }

 private:
  using Role = typename Pipeline::ThreadCategory;

  __device__ static typename Pipeline::Params pipeline_params(Role role) {
    typename Pipeline::Params params;
    params.transaction_bytes = Mainloop::TmaTransactionBytes;
    params.role = role;
    params.is_leader = role == Role::Producer;
    params.num_consumers = kMultiplyThreads;
    params.num_producers = Mainloop::NumProducerThreadEvents;
    params.initializing_warp = kBarrierInit;
    return params;
  }

  __device__ static void prepare(const Params& params, Shared& shared) {
    Pipeline::init_barriers(shared.pipeline, pipeline_params(Role::Producer), Cluster{});
    if (threadIdx.x % 32 == 0) {
      if (params.partials.is_any()) {
        begin_exchange(params.partials, shared.partials);
        __threadfence_block();
      }
      Mainloop::prefetch_tma_descriptors(params.mainloop);
    }
  }

  __device__ static void load(const Params& params, Shared& shared) {
    Meeting::arrive();
    Pipeline pipeline(shared.pipeline, pipeline_params(Role::Producer), Cluster{}, cute::false_type{},
                      cute::false_type{});
    Scheduler scheduler(params.scheduler);
    auto work = scheduler.get_current_work();
    Meeting::wait();
    if (!cute::elect_one_sync()) return;
    Mainloop mainloop;
    auto state = cutlass::make_producer_start_state<Pipeline>();
    const auto inputs = mainloop.load_init(params.problem, params.mainloop);
    const auto is_free = [&](const auto& at) {
      return shared.pipeline.empty_barrier_[at.index()].test_wait(at.phase());
    };
    while (work.is_valid()) {
      mainloop.load(params.mainloop, pipeline, is_free, state, inputs, work, params.k_steps, shared.tensors,
                    shared.announced);
      scheduler.advance_to_next_work();
      work = scheduler.get_current_work();
    }
    // Until the cluster's CTAs have read what this one has sent them.
    pipeline.producer_tail(state);
  }

  __device__ static void multiply(const Params& params, Shared& shared) { multiply_here(params, shared); }
  __device__ __forceinline__ static void multiply_here(const Params& params, Shared& shared) {
    Meeting::arrive();
    cutlass::arch::warpgroup_reg_alloc<kMultiplyRegisters>();
    const int thread = static_cast<int>(threadIdx.x) - kGroupThreads;
    Pipeline pipeline(shared.pipeline, pipeline_params(Role::Consumer), Cluster{}, cute::false_type{},
                      cute::true_type{});
    Mainloop mainloop;
    typename Mainloop::PipelineState state;
    TiledMma tiled_mma;
    Scheduler scheduler(params.scheduler);
    auto work = scheduler.get_current_work();
    Meeting::wait();
    Finish finish(params, shared, thread);
    // A group whose rows all lie behind the last one only frees what the other one multiplies, and has
    // nothing to finish.
    const int group_row = first_row_of_group(thread);
    while (work.is_valid()) {
      if (work.M_idx * kTileRows + group_row >= finish.end_row(work)) {
        Mainloop::skip(pipeline, state, params.k_steps);
      } else {
        auto sums = cute::partition_fragment_C(tiled_mma, cute::take<0, 2>(Tile{}));
        Sums::make(params.sums, params.mainloop, mainloop, pipeline, state, work, params.k_steps, thread,
                   shared.tensors, sums);
        finish.tile(work, scheduler.is_last_work(), sums);
      }
      state.advance(params.k_steps);
      scheduler.advance_to_next_work();
      work = scheduler.get_current_work();
    }
    finish.end();
  }

  template <class Work>
  __device__ static OwnedTile owned(const PartialExchange& partials, const Work& work) {
    return {.owner = partials.owner_of(work.L_idx), .row = work.M_idx, .column = work.N_idx};
  }

  __device__ static int first_row_of_group(int thread) {
    // Of kernels that exchange, the sums leave no register for it.
    if constexpr (kCanExchange) return first_row_of(thread) & kTileRows / 2;
    return (cutlass::canonical_warp_group_idx() - 1) * (kTileRows / 2);
  }

  /// What becomes of a tile's sums.
  class Finish {
   public:
    __device__ Finish(const Params& params, Shared& shared, int thread)
        : params_(params),
          row_(first_row_of(thread)),
          partials_(params.partials, shared.partials, thread / kGroupThreads) {
      if (exchanges()) greet_pusher();
    }
    /// Of the rows that a tile begins with: where they end.
    template <class Work>
    [[nodiscard]] __device__ int end_row(const Work& work) const {
      return exchanges() ? params_.partials.rows_of(params_.partials.owner_of(work.L_idx))
                         : params_.stores.batch_rows;
    }
    template <class Work, class Sums>
    __device__ __forceinline__ void tile(const Work& work, bool is_last, Sums& sums) {
      const int column = work.N_idx * kTileColumns;
      const auto store = [&](const typename Stores::Rows& rows) {
        Stores::store(rows, params_.stores.n, row_, column, sums);
      };
      if (!exchanges()) {
        Epilogue::apply(params_.epilogue, work, row_, sums);
        return store(Stores::rows_of(params_.stores, work));
      }
      if constexpr (kCanExchange) {
        if constexpr (kScales) Epilogue::apply_of_columns(params_.epilogue, column, sums);
        const OwnedTile tile = owned(params_.partials, work);
        const auto at = [&](int group, int row, int pair) -> float& {
          return sum_at(sums, group, row, pair);
        };
        if (params_.partials.product != nullptr) store(Stores::product_rows(params_.partials, tile));
        partials_.send(tile, is_last, at);
        if (!partials_.is_own(tile)) return;
        if (shares()) return partials_.put_aside(at);
        partials_.add(tile, at);
        store(Stores::own_rows(params_.stores, params_.partials, tile));
      }
    }
    /// Behind all tiles.
    __device__ __forceinline__ void end() {
      if (!exchanges()) return;
      if (kCanExchange && shares()) {
        Scheduler scheduler(params_.scheduler);
        for (int place = 0; place < partials_.num_aside(); scheduler.advance_to_next_work()) {
          const OwnedTile tile = owned(params_.partials, scheduler.get_current_work());
          if (partials_.is_own(tile)) settle(tile, place++);
        }
      }
      partials_.end();
    }

   private:
    [[nodiscard]] __device__ bool exchanges() const { return kCanExchange && params_.partials.is_any(); }
    [[nodiscard]] __device__ bool shares() const { return params_.partials.grid.shares_tiles; }

    __device__ __forceinline__ void settle(const OwnedTile& tile, int place) {
      const typename Stores::Rows rows = Stores::own_rows(params_.stores, params_.partials, tile);
      const int column = tile.column * kTileColumns;
      partials_.settle(tile, place, [&](int block, const auto& sums) {
        Stores::store(rows, params_.stores.n, row_, column + block * PartialGrid::kColumns, sums);
      });
    }

    const Params& params_;
    const int row_;
    PartialTiles<kTileColumns, Stores::kIsHalf> partials_;
  };

  __device__ static void await_partials(const Params& params, Shared& shared) {
    if constexpr (kCanExchange) {
      PartialPoller<kTileColumns> poller(params.partials, shared.partials);
      Scheduler scheduler(params.scheduler);
      for (auto work = scheduler.get_current_work(); work.is_valid(); work = scheduler.get_current_work()) {
        poller.await(owned(params.partials, work));
        scheduler.advance_to_next_work();
      }
      poller.end();
    }
  }

  __device__ static void push_partials(const Params& params, Shared& shared) {
    if constexpr (kCanExchange) {
      PartialPusher<kTileColumns> pusher(params.partials, shared.partials, shared.stage.data);
      await_greeting();
      Scheduler scheduler(params.scheduler);
      for (; !scheduler.is_last_work(); scheduler.advance_to_next_work()) {
        pusher.push(owned(params.partials, scheduler.get_current_work()));
      }
      pusher.end();
    }
  }

  /// Tells the thread that loads which pieces of this CTA's tiles have come. Once a wait has given up the
  /// others are skipped, and the kernel ends over what is there.
  __device__ static void look(const Params& params, std::uint32_t& announced) {
    const auto& mainloop = params.mainloop;
    Scheduler scheduler(params.scheduler);
    std::uint32_t before = 0;
    bool gave_up = false;
    tandem::cuda::await_kernel_before();
    for (auto work = scheduler.get_current_work(); work.is_valid(); work = scheduler.get_current_work()) {
      if (mainloop.pieces.has(work.M_idx / mainloop.by_signal)) {
        announce_pieces(mainloop.signals, mainloop.pieces, work.M_idx, {announced, before}, gave_up);
        before += static_cast<std::uint32_t>(mainloop.pieces.k_steps());
      }
      scheduler.advance_to_next_work();
    }
  }
};

}  // namespace tandem::gemm::cuda
