#include "gemm/chunk_parts.hpp"

namespace tandem::gemm {

namespace {

std::int64_t tiles_of(std::int64_t rows, const ChunkCut& cut) {
  return (rows + cut.tile_rows - 1) / cut.tile_rows;
}

}  // namespace

ChunkParts::ChunkParts(std::int64_t rows, int chunks, int pivot, const ChunkCut& cut) {
  const auto& [tile_rows, cluster_rows, together, in_order, as_one] = cut;
  if (as_one) {
    add(0, ChunkOrder(rows, 1, 0));
    return;
  }
  const ChunkOrder all(rows, chunks, pivot);
  const std::int64_t stride = all.stride();
  // Where shards end inside a cluster, and all tiles together do not.
  const bool ends_with_tile = stride % tile_rows == 0;
  const std::int64_t chunk_tiles = tiles_of(stride, cut);
  const std::int64_t all_tiles = ends_with_tile ? tiles_of(rows, cut) : chunk_tiles * all.size();
  const bool counts_in_tiles = ends_with_tile || (together == 1 && rows % stride == 0);
  if (!in_order && stride > 0 && counts_in_tiles && chunk_tiles * together % cluster_rows != 0 &&
      all_tiles % cluster_rows == 0) {
    add(0, ChunkOrder(ends_with_tile ? rows : all_tiles * tile_rows, 1, 0));
    parts_[0].start = {.row = static_cast<int>(all.chunk(0) * chunk_tiles),
                       .section = static_cast<int>(chunk_tiles * together)};
    return;
  }
  if (together > 1 && stride > 0 && stride % tile_rows == 0) {
    const int groups = (all.size() - 1) / together + 1;
    const ChunkOrder order(rows, groups, pivot < all.size() ? pivot / together : 0);
    if (order.stride() == stride * together || groups == 1) {
      add(0, order);
      return;
    }
  }
  if (all.size() <= 1 || stride % tile_rows == 0 || rows % stride == 0) {
    add(0, all);
    return;
  }
  const int last = all.size() - 1;
  const int before = last - all.chunk(0);  // chunks from the pivot up to the short one
  if (before > 0) add(all.chunk(0), ChunkOrder(before * stride, before, 0));
  add(last, ChunkOrder(all.rows_of(last).size, 1, 0));
  const int behind = last - before;
  if (behind > 0) add(0, ChunkOrder(behind * stride, behind, 0));
}

void ChunkParts::add(int first, const ChunkOrder& chunks) {
  if (chunks.size() > 0) parts_[size_++] = {.first = first, .chunks = chunks, .start = {}};
}

}  // namespace tandem::gemm
