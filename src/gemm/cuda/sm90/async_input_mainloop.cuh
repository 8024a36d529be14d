#pragma once

// CUTLASS's mainloop of Hopper, whose loads of the left operand wait for its chunk.

#include <array>
#include <memory>
#include <optional>

#include <cutlass/cutlass.h>
#include <cutlass/gemm/gemm.h>
#include <cute/tensor.hpp>
#include <cutlass/gemm/collective/collective_builder.hpp>

#include <tandem/base/divisor.hpp>
#include <tandem/symm/chunk_signals.cuh>

#include "device/cuda/next_kernel.cuh"
#include "gemm/cuda/sm90/piece_exchange.cuh"
#include "gemm/cuda/sm90/row_strips.cuh"

namespace tandem::gemm::cuda {

/// What a tensor map is made of, besides what its kernel fixes. It says nothing of what the memory holds.
struct MapKey {
  const void* data = nullptr;
  std::int64_t sizes[3] = {};
  friend bool operator==(const MapKey&, const MapKey&) = default;
};

/// make(), or what it returned for this key: maps take the host longer to make than all else of a launch.
/// Each `Make` has a few of its own, and each thread.
template <class Make>
auto remembered(const MapKey& key, Make make) {
  constexpr std::size_t kMost = 8;
  struct Known {
    MapKey key;
    std::optional<decltype(make())> map;
  };
  struct All {
    std::array<Known, kMost> known;
    std::size_t oldest = 0;
  };
  // Not in the thread's own storage: every thread of a process would carry it.
  thread_local std::unique_ptr<All> all;
  if (!all) all = std::make_unique<All>();
  for (const Known& one : all->known) {
    if (one.map && one.key == key) return *one.map;
  }
  Known& replaced = all->known[all->oldest];
  all->oldest = (all->oldest + 1) % kMost;
  replaced.key = key;
  replaced.map.emplace(make());
  return *replaced.map;
}

/// A box after the other, of which a row-major b has several a step. Unrolled, their coordinates would need
/// more registers than the warp that loads has.
template <class Copy, class From, class To>
CUTLASS_DEVICE void copy_in_turn(const Copy& copy_box, const From& from, const To& to) {
  using namespace cute;
  const auto boxes = tensor<0>(from);
  auto to_boxes = tensor<0>(to);
  CUTLASS_PRAGMA_NO_UNROLL
  for (int i = 0; i < size<1>(boxes); ++i) copy(copy_box, boxes(_, i), to_boxes(_, i));
}

/// `Base` with two sources for the left operand, and a wait before a tile's first load from the one that
/// arrives: load() and its parameters are its own, see AsyncInputProduct. Signals: one word a chunk in global
/// memory, see ChunkSignals, or one a piece. Each CTA of a cluster waits for itself.
template <class Base>
struct AsyncInputMainloop : Base {
  using TmaA = typename Base::Params::TMA_A;
  using ElementA = typename Base::ElementA;
  using Strips = RowStrips<Base>;

  /// The left operand as its tensor maps see it: `count` batches of `rows`.
  struct Rows {
    const ElementA* data;
    int rows;
    int count;
  };
  struct Arguments : Base::Arguments {
    Rows arriving;
    Rows complete;
    int tiles_per_signal;  ///< rows of tiles; 0: a signal a batch
    tandem::symm::ChunkSignals signals;
    IncomingPieces pieces;
    int scales_step;
    int shard_rows;
  };
  struct Params : Base::Params {
    TmaA tma_load_complete;
    Strips strips;
    Strips complete_strips;
    int tiles_per_signal;
    Divisor by_signal;  ///< the same, where it is not 0
    tandem::symm::ChunkSignals signals;
    IncomingPieces pieces;
    /// Before this step of a tile whose chunk comes in pieces its signal is awaited, which tells that the
    /// chunk's scales are there; -1: before none.
    int scales_step;
    /// Batches are owners of so many rows of one matrix, whose tiles begin with the first of them; 0: they
    /// are not.
    int shard_rows;

    template <class WorkTile>
    CUTLASS_DEVICE int chunk_of(const WorkTile& work) const {
      return tiles_per_signal == 0 ? work.L_idx : work.M_idx / by_signal;
    }
    template <class WorkTile>
    CUTLASS_DEVICE bool is_complete(const WorkTile& work) const {
      return signals.is_complete(chunk_of(work));
    }
  };

  template <class ProblemShape>
  static Params to_underlying_arguments(const ProblemShape& problem, const Arguments& args) {
    Params params;
    const int n = cute::get<1>(problem);
    const int k = cute::get<2>(problem);
    params.tma_load_a = map_of(args.arriving, k);
    // A map has to be of something.
    params.tma_load_complete = args.complete.data == nullptr ? params.tma_load_a : map_of(args.complete, k);
    params.strips = strips_of(args.arriving, k);
    params.complete_strips = args.complete.data == nullptr ? params.strips : strips_of(args.complete, k);
    params.tma_load_b = map_of_b(args, n, k);
    params.tiles_per_signal = args.tiles_per_signal;
    if (args.tiles_per_signal > 0) params.by_signal = Divisor(args.tiles_per_signal);
    params.signals = args.signals;
    params.pieces = args.pieces;
    params.scales_step = args.scales_step;
    params.shard_rows = args.shard_rows;
    return params;
  }

  CUTLASS_DEVICE static void prefetch_tma_descriptors(const Params& params) {
    Base::prefetch_tma_descriptors(params);
    cute::prefetch_tma_descriptor(params.tma_load_complete.get_tma_descriptor());
  }

  /// By all threads of a warp group, in place of mma(): frees the stages of a tile from `state` on.
  CUTLASS_DEVICE static void skip(typename Base::MainloopPipeline& pipeline,
                                  typename Base::PipelineState state, int k_steps) {
    CUTLASS_PRAGMA_NO_UNROLL
    for (int i = 0; i < k_steps; ++i, ++state) {
      pipeline.consumer_wait(state);
      pipeline.consumer_release(state);
    }
  }

  /// By one thread: a tile's steps of k, from `state` on. `is_free(state)` looks whether a stage can be
  /// acquired without a wait.
  template <class IsFree, class TensorA, class TensorB, class WorkTile>
  CUTLASS_DEVICE void load(const Params& params, typename Base::MainloopPipeline& pipeline, IsFree is_free,
                           typename Base::PipelineState& state, const cute::tuple<TensorA, TensorB>& inputs,
                           const WorkTile& work, int k_steps, typename Base::TensorStorage& shared,
                           std::uint32_t& announced) {
    using namespace cute;
    using Cluster = typename Base::DispatchPolicy::ClusterShape;
    constexpr int kClusterRows = size<0>(Cluster{});
    constexpr int kStages = Base::DispatchPolicy::Stages;
    const auto cta_of_cluster = static_cast<int>(block_rank_in_cluster());
    const int row = cta_of_cluster % kClusterRows;
    const int column = cta_of_cluster / kClusterRows;

    const tandem::symm::ChunkSignals& signals = params.signals;
    const int chunk = params.chunk_of(work);
    const bool is_complete = signals.is_complete(chunk);
    const bool in_pieces = params.pieces.has(chunk);
    const bool has_owners = params.shard_rows > 0;
    const int first_row = has_owners ? work.L_idx * params.shard_rows : 0;
    const int batch =
        has_owners ? 0
                   : work.L_idx - (is_complete && params.tiles_per_signal == 0 ? signals.complete_begin : 0);
    const int tile = work.M_idx - (is_complete ? signals.complete_begin * params.tiles_per_signal : 0);
    const TmaA& tma_a = is_complete ? params.tma_load_complete : params.tma_load_a;
    const Strips& strips = is_complete ? params.complete_strips : params.strips;
    // A tile that ends outside of its owner's rows lies in those of the next one.
    const int num_strips = has_owners ? Strips::kOfTile : strips.count_in(tile);

    Tensor sA = make_tensor(make_smem_ptr(shared.smem_A.data()), typename Base::SmemLayoutA{});
    Tensor sB = make_tensor(make_smem_ptr(shared.smem_B.data()), typename Base::SmemLayoutB{});
    auto slice_a = params.tma_load_a.get_slice(column);
    auto slice_b = params.tma_load_b.get_slice(row);
    Tensor at_tile = slice_a.partition_S(get<0>(inputs)(_, _, tile, _, batch));
    Tensor from_a =
        make_tensor(at_tile.data() + make_arithmetic_tuple(_0{}, first_row, _0{}), at_tile.layout());
    Tensor from_b = slice_b.partition_S(get<1>(inputs)(_, _, work.N_idx, _, 0));
    Tensor to_a = slice_a.partition_D(sA);
    Tensor to_b = slice_b.partition_D(sB);
    const std::uint16_t mask_a = row_mask<Cluster>(row);
    const std::uint16_t mask_b = column_mask<Cluster>(column);

    // b has a step of its own: before a is awaited, it goes into the stages that are free.
    int b_step = 0;
    auto b_state = state;
    const auto load_b = [&] {
      pipeline.producer_acquire(b_state);
      copy_in_turn(params.tma_load_b.with(*pipeline.producer_get_barrier(b_state), mask_b),
                   from_b(_, _, _, b_step), to_b(_, _, _, b_state.index()));
      ++b_step;
      ++b_state;
    };

    // Steps of this tile that may be loaded.
    int arrived = is_complete || (!in_pieces && chunk == awaited_) ? k_steps : 0;
    CUTLASS_PRAGMA_NO_UNROLL
    for (int i = 0; i < k_steps; ++i) {
      if (b_step == i) load_b();
      if (i >= arrived) {
        const auto load_b_ahead = [&] {
          const bool can = b_step < min(i + kStages, k_steps) && is_free(b_state);
          if (can) load_b();
          return can;
        };
        if (in_pieces) {
          arrived = static_cast<int>(
              await_announced(announced, before_ + i, signals, params.pieces, chunk, load_b_ahead) - before_);
        } else {
          while (load_b_ahead()) continue;
          tandem::cuda::await_kernel_before();
          await_signal(signals, chunk);
          arrived = k_steps;
        }
      }
      // Whoever announced this step has waited for the kernel before, which may have reset the word.
      if (in_pieces && i == params.scales_step && chunk != awaited_) await_signal(signals, chunk);
      auto& full = *pipeline.producer_get_barrier(state);
      if (num_strips == Strips::kOfTile) {
        copy(tma_a.with(full, mask_a), from_a(_, _, _, i), to_a(_, _, _, state.index()));
      } else {
        strips.load({tile, i, batch}, num_strips, {column, mask_a}, full, sA(_, _, state.index()));
      }
      ++state;
    }
    if (in_pieces) before_ += static_cast<std::uint32_t>(k_steps);
  }

 private:
  static TmaA map_of(const Rows& rows, int k) {
    using namespace cute;
    return remembered({rows.data, {rows.rows, k, rows.count}}, [&] {
      const auto layout = make_layout(make_shape(rows.rows, k, rows.count),
                                      typename Base::StrideA{k, Int<1>{}, std::int64_t{rows.rows} * k});
      const auto* data = reinterpret_cast<const typename Base::InternalElementA*>(rows.data);
      return make_tma_copy_A_sm90(typename Base::GmemTiledCopyA{}, make_tensor(data, layout),
                                  typename Base::SmemLayoutA{}(_, _, Int<0>{}), typename Base::TileShape{},
                                  typename Base::DispatchPolicy::ClusterShape{});
    });
  }
  static Strips strips_of(const Rows& rows, int k) {
    if (rows.rows % Strips::kTileRows == 0) return {};
    return remembered({rows.data, {rows.rows, k, rows.count}}, [&] {
      const auto* data = reinterpret_cast<const typename Base::InternalElementA*>(rows.data);
      return Strips::make(data, rows.rows, k, rows.count);
    });
  }
  static auto map_of_b(const Arguments& args, int n, int k) {
    using namespace cute;
    return remembered({args.ptr_B, {n, k, 1}}, [&] {
      const auto* data = reinterpret_cast<const typename Base::InternalElementB*>(args.ptr_B);
      return make_tma_copy_B_sm90(typename Base::GmemTiledCopyB{},
                                  make_tensor(data, make_layout(make_shape(n, k, 1), args.dB)),
                                  typename Base::SmemLayoutB{}(_, _, Int<0>{}), typename Base::TileShape{},
                                  typename Base::DispatchPolicy::ClusterShape{});
    });
  }
  /// The CTAs of the cluster that get this CTA's part of a (those beside it), and of b (above and below).
  template <class Cluster>
  CUTLASS_DEVICE static std::uint16_t row_mask(int row) {
    std::uint16_t mask = 0;
    for (int c = 0; c < cute::size<1>(Cluster{}); ++c)
      mask |= std::uint16_t(1U << (row + c * cute::size<0>(Cluster{})));
    return cute::size<1>(Cluster{}) > 1 ? mask : 0;
  }
  template <class Cluster>
  CUTLASS_DEVICE static std::uint16_t column_mask(int column) {
    std::uint16_t mask = 0;
    for (int r = 0; r < cute::size<0>(Cluster{}); ++r)
      mask |= std::uint16_t(1U << (r + column * cute::size<0>(Cluster{})));
    return cute::size<0>(Cluster{}) > 1 ? mask : 0;
  }

  CUTLASS_DEVICE void await_signal(const tandem::symm::ChunkSignals& signals, int chunk) {
    if (!gave_up_) gave_up_ = !tandem::symm::await_chunk(signals, chunk);
    awaited_ = chunk;
  }

  int awaited_ = -1;
  bool gave_up_ = false;
  std::uint32_t before_ = 0;  ///< announced steps of the tiles before
};

}  // namespace tandem::gemm::cuda
