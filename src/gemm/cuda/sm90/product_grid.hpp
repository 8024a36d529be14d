#pragma once

#include <tandem/gemm/tile_order.hpp>

#include "gemm/cuda/sm90/async_input_kernel.hpp"

namespace tandem::gemm::cuda {

/// What the tensor maps and the tile scheduler of one launch go by.
struct ProductGrid {
  // a and out are one batch where what signals stand for ends with a tile, or there is but one signal; else a
  // batch a signal, and all have as many rows, so that the maps cut off the last tile of each.
  int batch_rows = 0;
  int batches = 0;
  int tiles_per_signal = 0;  ///< rows of tiles; 0: a signal a batch
  int complete_rows = 0;     ///< of a batch of what is complete from the start
  int complete_batches = 0;  ///< 0: nothing is
  TileOrder order;
  int tiles_per_chunk = 0;  ///< these two as ChunkTileScheduler has them
  int tiles_per_batch = 0;
  int num_clusters = 0;  ///< that multiply
  PiecePush push;        ///< the launch's, sent by CTAs behind those that multiply, or beside their tiles
};
/// `most_together`: pieces that the kernel has room for, see send_rounds().
[[nodiscard]] ProductGrid product_grid(const AsyncInputLaunch& what, const Tiling& tiling, int most_together);

}  // namespace tandem::gemm::cuda
