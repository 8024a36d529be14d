#include "gemm/cuda/sm90/async_input_parts.hpp"

namespace tandem::gemm::cuda {

ChunkParts::ChunkParts(std::int64_t rows, int chunks, int pivot, int tile_rows, int together) {
  const ChunkOrder all(rows, chunks, pivot);
  const std::int64_t stride = all.stride();
  if (together > 1 && stride > 0 && stride % tile_rows == 0) {
    const int groups = (all.size() + together - 1) / together;
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
  if (chunks.size() > 0) parts_[size_++] = {first, chunks};
}

}  // namespace tandem::gemm::cuda
