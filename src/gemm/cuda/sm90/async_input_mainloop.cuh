#pragma once

// CUTLASS's mainloop of Hopper, whose loads of the left operand wait for its chunk.

#include <array>
#include <memory>
#include <optional>

#include <cutlass/cutlass.h>
#include <cutlass/gemm/gemm.h>
#include <cute/tensor.hpp>
#include <cutlass/gemm/collective/collective_builder.hpp>

#include <tandem/gemm/async_input_scheduler.cuh>

#include "gemm/cuda/sm90/patch_exchange.cuh"

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

/// `Base` with two sources for the left operand, and a wait before a tile's first load from the one that
/// arrives.
///
///   warp group 0   warp 0: one thread issues all tensor loads, so it alone waits for chunks, and for the
///                  patches that another warp announces: see patch_exchange.cuh. 40 registers a thread.
///   warp groups    each multiplies half of the tile's rows, rounds and stores them.
///   1 and 2
///
/// Shared memory: the epilogue's staging, then as many stages of (a, b) tiles as fit. Signals: one word a
/// chunk in global memory, see ChunkSignals, or one a patch. A tile's first part of b is on its way while its
/// chunk is awaited. Between the CTAs of a cluster nothing changes: each waits for itself.
template <class Base>
struct AsyncInputMainloop : Base {
  using TmaA = typename Base::Params::TMA_A;
  using ElementA = typename Base::ElementA;

  /// The left operand as its tensor maps see it: `count` batches of `rows`.
  struct Rows {
    const ElementA* data;
    int rows;
    int count;
  };
  /// `announced` is what the warp that looks at signals tells the thread that loads.
  struct TensorStorage : Base::TensorStorage {
    PatchStage stage;
    alignas(16) std::uint32_t announced;
  };
  struct Arguments : Base::Arguments {
    Rows arriving;
    Rows complete;
    int tiles_per_signal;  ///< rows of tiles; 0: a signal a batch
    tandem::symm::ChunkSignals signals;
    PatchSignals patches;
  };
  struct Params : Base::Params {
    TmaA tma_load_complete;
    int tiles_per_signal;
    Divisor by_signal;  ///< the same, where it is not 0
    tandem::symm::ChunkSignals signals;
    PatchSignals patches;
  };

  template <class ProblemShape>
  static Params to_underlying_arguments(const ProblemShape& problem, const Arguments& args, void*) {
    Params params;
    const int n = cute::get<1>(problem);
    const int k = cute::get<2>(problem);
    params.tma_load_a = map_of(args.arriving, k);
    // A map has to be of something.
    params.tma_load_complete = args.complete.data == nullptr ? params.tma_load_a : map_of(args.complete, k);
    params.tma_load_b = map_of_b(args, n, k);
    params.tma_transaction_bytes = Base::TmaTransactionBytes;
    params.tma_transaction_bytes_mk = Base::TmaTransactionBytesMK;
    params.tma_transaction_bytes_nk = Base::TmaTransactionBytesNK;
    params.tiles_per_signal = args.tiles_per_signal;
    if (args.tiles_per_signal > 0) params.by_signal = Divisor(args.tiles_per_signal);
    params.signals = args.signals;
    params.patches = args.patches;
    return params;
  }

  CUTLASS_DEVICE static void prefetch_tma_descriptors(const Params& params) {
    Base::prefetch_tma_descriptors(params);
    cute::prefetch_tma_descriptor(params.tma_load_complete.get_tma_descriptor());
  }

  template <class TensorA, class TensorB, class KTiles, class Block>
  CUTLASS_DEVICE void load(const Params& params, typename Base::MainloopPipeline pipeline,
                           typename Base::PipelineState state, const cute::tuple<TensorA, TensorB>& inputs,
                           const Block& block, KTiles k_tile, int k_tiles, int, std::uint32_t cta_of_cluster,
                           TensorStorage& shared) {
    using namespace cute;
    if (!elect_one_sync()) return;
    using Cluster = typename Base::DispatchPolicy::ClusterShape;
    constexpr int kClusterRows = size<0>(Cluster{});
    const int row = static_cast<int>(cta_of_cluster) % kClusterRows;
    const int column = static_cast<int>(cta_of_cluster) / kClusterRows;

    auto [m, n, unused, l] = block;
    const tandem::symm::ChunkSignals& signals = params.signals;
    const int chunk =
        params.tiles_per_signal == 0 ? static_cast<int>(l) : static_cast<int>(m) / params.by_signal;
    const bool is_complete = signals.is_complete(chunk);
    const bool in_patches = params.patches.has(chunk);
    const int batch =
        static_cast<int>(l) - (is_complete && params.tiles_per_signal == 0 ? signals.complete_begin : 0);
    const int tile =
        static_cast<int>(m) - (is_complete ? signals.complete_begin * params.tiles_per_signal : 0);
    const TmaA& tma_a = is_complete ? params.tma_load_complete : params.tma_load_a;

    Tensor sA = make_tensor(make_smem_ptr(shared.smem_A.data()), typename Base::SmemLayoutA{});
    Tensor sB = make_tensor(make_smem_ptr(shared.smem_B.data()), typename Base::SmemLayoutB{});
    auto slice_a = params.tma_load_a.get_slice(column);
    auto slice_b = params.tma_load_b.get_slice(row);
    Tensor from_a = slice_a.partition_S(get<0>(inputs)(_, _, tile, _, batch));
    Tensor from_b = slice_b.partition_S(get<1>(inputs)(_, _, n, _, 0));
    Tensor to_a = slice_a.partition_D(sA);
    Tensor to_b = slice_b.partition_D(sB);
    const std::uint16_t mask_a = row_mask<Cluster>(row);
    const std::uint16_t mask_b = column_mask<Cluster>(column);

    const auto load_a = [&] {
      copy(tma_a.with(*pipeline.producer_get_barrier(state), mask_a), from_a(_, _, _, *k_tile),
           to_a(_, _, _, state.index()));
    };
    const auto load_b = [&] {
      copy(params.tma_load_b.with(*pipeline.producer_get_barrier(state), mask_b), from_b(_, _, _, *k_tile),
           to_b(_, _, _, state.index()));
    };

    // Steps of this tile that may be loaded.
    int arrived = is_complete || (!in_patches && chunk == awaited_) ? k_tiles : 0;
    CUTLASS_PRAGMA_NO_UNROLL
    for (int i = 0; i < k_tiles; ++i) {
      pipeline.producer_acquire(state);
      load_b();
      if (i >= arrived) {
        if (in_patches) {
          arrived = static_cast<int>(await_announced(shared.announced, before_ + i) - before_);
        } else {
          if (!gave_up_) gave_up_ = !tandem::symm::await_chunk(signals, chunk);
          awaited_ = chunk;
          arrived = k_tiles;
        }
      }
      load_a();
      ++k_tile;
      ++state;
    }
    if (in_patches) before_ += static_cast<std::uint32_t>(k_tiles);
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

  int awaited_ = -1;
  bool gave_up_ = false;
  std::uint32_t before_ = 0;  ///< announced steps of the tiles before
};

}  // namespace tandem::gemm::cuda
