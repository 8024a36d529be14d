#pragma once

// How the rows of a tile are loaded that ends outside of its matrix.

#include <cutlass/arch/barrier.h>
#include <cute/tensor.hpp>

#include <cstdint>

namespace tandem::gemm::cuda {

/// Rows and columns of the left operand that one strip is.
template <class Mainloop>
using StripShape = cute::Shape<cute::_32, cute::Int<cute::size<2>(typename Mainloop::TileShape{})>>;

/// `count` batches of [rows, k], as a tensor map whose boxes are strips.
template <class Mainloop>
auto map_of_strips(const typename Mainloop::InternalElementA* data, int rows, int k, int count) {
  using namespace cute;
  const auto layout = make_layout(make_shape(rows, k, count),
                                  typename Mainloop::StrideA{k, Int<1>{}, std::int64_t{rows} * k});
  const auto in_shared = tile_to_shape(typename Mainloop::SmemLayoutAtomA{}, StripShape<Mainloop>{});
  // To all CTAs of the cluster's row, as a whole tile goes; each strip is one box, which one of them loads.
  return make_tma_copy(typename Mainloop::GmemTiledCopyA{}, make_tensor(data, layout), in_shared,
                       StripShape<Mainloop>{}, Int<1>{});
}

/// The left operand in strips of a few rows: for tiles that end outside of it. A box of which much lies
/// outside is slow to load, so that tiles with a quarter of their rows took longer than whole ones where
/// loads bound a step. Strips that lie outside are not loaded: their rows of the tile stay what they were,
/// and what is multiplied from them is not stored.
/// Source:  docs/design/native_all_gather_matmul.md
template <class Mainloop>
struct RowStrips {
  using Element = typename Mainloop::InternalElementA;
  using Map = decltype(map_of_strips<Mainloop>(nullptr, 0, 0, 0));
  using Shape = StripShape<Mainloop>;
  static constexpr int kTileRows = cute::size<0>(typename Mainloop::TileShape{});
  static constexpr int kRows = cute::size<0>(Shape{});
  static constexpr int kOfTile = kTileRows / kRows;
  static constexpr std::uint32_t kBytes = cute::size(Shape{}) * sizeof(Element);
  static constexpr int kClusterColumns = cute::size<1>(typename Mainloop::DispatchPolicy::ClusterShape{});

  Map map;
  int rows = 0;  ///< of a batch; 0: all tiles are whole, and there is no map
  int k = 0;
  int batches = 0;

  static RowStrips make(const Element* data, int rows, int k, int count) {
    return {map_of_strips<Mainloop>(data, rows, k, count), rows, k, count};
  }

  /// Of the tile in row `tile` of tiles; no tile lies outside. kOfTile where it ends inside.
  CUTLASS_DEVICE int count_in(int tile) const {
    const int strips = (rows - tile * kTileRows + kRows - 1) / kRows;
    return rows == 0 || strips > kOfTile ? kOfTile : strips;
  }

  /// In tiles.
  struct Place {
    int row;
    int step;  ///< of k
    int batch;
  };
  /// Whom a CTA of a cluster loads for: it takes every so manieth strip.
  struct Share {
    int column;          ///< of the CTA in its cluster
    std::uint16_t mask;  ///< the CTAs that get it; 0: there is but this one
  };
  /// This CTA's share of the first `count` strips of a tile, into `to_tile` in shared memory. `full` awaits
  /// the bytes of all strips, and gets here those of strips that nobody loads.
  template <class TileInShared>
  CUTLASS_DEVICE void load(const Place& place, int count, const Share& share, std::uint64_t& full,
                           const TileInShared& to_tile) const {
    using namespace cute;
    auto slice = map.get_slice(0);
    Tensor all = map.get_tma_tensor(make_shape(rows, k, batches));
    CUTLASS_PRAGMA_NO_UNROLL
    for (int i = share.column; i < count; i += kClusterColumns) {
      Tensor from = local_tile(all, Shape{}, make_coord(place.row * kOfTile + i, place.step, place.batch));
      Tensor to = local_tile(to_tile, Shape{}, make_coord(i, 0));
      copy(map.with(full, share.mask), slice.partition_S(from), slice.partition_D(to));
    }
    cutlass::arch::ClusterTransactionBarrier::complete_transaction(
        &full, block_rank_in_cluster(), static_cast<std::uint32_t>(kOfTile - count) * kBytes);
  }
};

}  // namespace tandem::gemm::cuda
