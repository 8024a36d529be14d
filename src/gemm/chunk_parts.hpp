#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <tandem/gemm/chunk_order.hpp>
#include <tandem/gemm/tile_order.hpp>

namespace tandem::gemm {

/// Chunks that one launch takes, in order from `pivot` on, around.
struct ChunkPart {
  int first = 0;  ///< chunk of the product that is chunk 0 of this part
  /// As tiles are taken: each as many of the product's as are taken together. A single one may have more rows
  /// than the product, if its chunks end inside tiles.
  ChunkOrder chunks;
  TileStart start;
};

/// What decides on how chunks are cut into launches.
struct ChunkCut {
  int tile_rows = 128;
  int cluster_rows = 1;
  int together = 1;      ///< as AsyncInputMmArgs::chunks_together; only chunks of whole tiles are
  bool in_order = true;  ///< as AsyncInputMmArgs::in_order
  bool as_one = false;   ///< all rows come together: they are one chunk
};

/// A product's chunks in at most three parts, one after the other in the product's order. A kernel cuts the
/// last tile of a chunk off only where all its chunks have the same rows or whole tiles. So a short last
/// chunk behind others that end inside a tile is a part of its own, and splits the others where it stands in
/// the order. Where chunks are not kept in order and end inside a cluster, all rows are one chunk that is
/// taken from the pivot's on, in sections; equal chunks that end inside a tile count as whole tiles there.
class ChunkParts {
 public:
  ChunkParts(std::int64_t rows, int chunks, int pivot, const ChunkCut& cut);
  [[nodiscard]] std::span<const ChunkPart> parts() const { return {parts_.data(), size_}; }

 private:
  void add(int first, const ChunkOrder& chunks);

  std::array<ChunkPart, 3> parts_;
  std::size_t size_ = 0;
};

}  // namespace tandem::gemm
