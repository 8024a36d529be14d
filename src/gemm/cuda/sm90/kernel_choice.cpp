#include "gemm/cuda/sm90/kernel_choice.hpp"

#include <algorithm>
#include <cmath>

#include "base/format.hpp"

namespace tandem::gemm::cuda {
namespace {

/// Measured on an H200: a tile of 128 x n x 8192, and a chunk on its way through a copy engine.
struct Rates {
  double launch_us = 2.3;
  double begin_us = 4;  ///< and end of a tile, whatever k
  double tile_us = 4.5;
  double column_us = 0.308;
  double k = 8192;
  double unpaired = 1.15;  ///< so much longer takes a tile whose b no other CTA loads
  double first_chunk_us = 4;
  double chunk_us = 4.2;
  double bytes_per_us = 370e3;
  double first_patch_us = 8;  ///< what comes in patches keeps pace with the product from there on
};

/// How many chunks are on their way in patches at one time; those behind them come when they are there.
std::int64_t patches_at_once(const ResidentKernel& kernel, const Product& product, std::int64_t columns) {
  const Chunks& chunks = *product.arrival;
  const std::int64_t of_rank = std::max<std::int64_t>(chunks.complete, 1);
  const auto peers = static_cast<int>(chunks.patched / of_rank);
  if (peers == 0) return 1;
  const Tiling& tiling = kernel.kernel->tiling;
  const std::int64_t rows = (product.m / tiling.tile_rows + tiling.cluster_rows - 1) / tiling.cluster_rows;
  const auto shards = static_cast<int>(chunks.count / of_rank);
  return peers_at_once(peers, kernel.most_clusters, rows * columns, shards) * of_rank;
}

/// Of the chunk that is taken as number `step`.
double arrival_us(const Chunks& chunks, std::int64_t step, std::int64_t chunk_bytes,
                  std::int64_t patches_at_once) {
  constexpr Rates kRates;
  if (step < chunks.complete) return 0;
  const std::int64_t arriving = step - chunks.complete;
  const std::int64_t sent = arriving - chunks.patched + 1;
  if (sent <= 0) {
    const std::int64_t before = arriving / patches_at_once * patches_at_once;
    return kRates.first_patch_us +
           static_cast<double>(before * chunk_bytes) / static_cast<double>(kSentBytesPerUs);
  }
  return kRates.first_chunk_us +
         static_cast<double>(sent) *
             (kRates.chunk_us + static_cast<double>(chunk_bytes) / kRates.bytes_per_us);
}

bool accepts(const Tiling& tiling, const ChunkParts& parts, std::int64_t columns) {
  return std::all_of(parts.parts().begin(), parts.parts().end(),
                     [&](const ChunkPart& part) { return TileOrder::accepts(part.chunks, columns, tiling); });
}

/// The chunks, or groups of them, that are taken one after the other.
ChunkOrder steps_of(const Product& product, std::span<const ChunkPart> parts) {
  const ChunkOrder signals(product.m, static_cast<int>(product.arrival->count), 0);
  if (parts.size() != 1) return signals;
  if (parts[0].start.section == 0) return parts[0].chunks;
  const std::int64_t stride = signals.stride() * product.arrival->most_together();
  return ChunkOrder(product.m, static_cast<int>((product.m + stride - 1) / stride), 0);
}

}  // namespace

ChunkCut cut_of(const Tiling& tiling, const Product& product) {
  return {.tile_rows = tiling.tile_rows,
          .cluster_rows = tiling.cluster_rows,
          .together = static_cast<int>(product.arrival->most_together()),
          .in_order = product.arrival->in_order};
}

double tile_us(const Tiling& tiling, std::int64_t k) {
  constexpr Rates kRates;
  const bool is_alone = tiling.cluster_rows * tiling.cluster_columns == 1;
  const double deep_us = kRates.tile_us + kRates.column_us * tiling.tile_columns;
  return kRates.begin_us + (is_alone ? kRates.unpaired : 1) * deep_us * static_cast<double>(k) / kRates.k;
}

double predicted_us(const ResidentKernel& kernel, const Product& product) {
  const Chunks& chunks = *product.arrival;
  const Tiling& tiling = kernel.kernel->tiling;
  const ChunkParts parts(product.m, static_cast<int>(chunks.count), 0, cut_of(tiling, product));
  if (!accepts(tiling, parts, product.n) || kernel.most_clusters < 1) return 0;
  const ChunkOrder signals(product.m, static_cast<int>(product.arrival->count), 0);
  const ChunkOrder order = steps_of(product, parts.parts());
  const std::int64_t together = signals.stride() == 0 ? 1 : order.stride() / signals.stride();
  const std::int64_t chunk_bytes = signals.stride() * product.k * size_bytes(product.a);
  const std::int64_t columns =
      (product.n + tiling.tile_columns - 1) / tiling.tile_columns / tiling.cluster_columns;
  const std::int64_t at_once = patches_at_once(kernel, product, columns);
  constexpr Rates kRates;
  constexpr double kManyTiles = 1 << 16;
  const double tiles = std::ceil(static_cast<double>(product.m) / tiling.tile_rows) *
                       std::ceil(static_cast<double>(product.n) / tiling.tile_columns);
  if (tiles > kManyTiles) {
    // So many waves that the last one, and what comes in between, make no difference.
    const int ctas = kernel.most_clusters * tiling.cluster_rows * tiling.cluster_columns;
    const double arrived_us =
        arrival_us(chunks, chunks.count - 1, chunk_bytes, at_once) + tile_us(tiling, product.k);
    return kRates.launch_us + std::max(tiles / ctas * tile_us(tiling, product.k), arrived_us);
  }
  std::vector<double> free_us(static_cast<std::size_t>(kernel.most_clusters), 0.0);
  std::size_t next = 0;
  std::int64_t tile_rows = 0;  // up to this step
  std::int64_t taken = 0;      // in rows of clusters
  for (int step = 0; step < order.size(); ++step) {
    tile_rows += (order.rows_of(step).size + tiling.tile_rows - 1) / tiling.tile_rows;
    // A cluster that lies in two steps is of the later one.
    const bool is_last = step + 1 == order.size();
    const std::int64_t rows =
        (tile_rows + (is_last ? tiling.cluster_rows - 1 : 0)) / tiling.cluster_rows - taken;
    taken += rows;
    const double here_us = arrival_us(chunks, (step + 1) * together - 1, chunk_bytes, at_once);
    for (std::int64_t i = 0; i < rows * columns; ++i) {
      double& free = free_us[next];
      free = std::max(free, here_us) + tile_us(tiling, product.k);
      next = next + 1 == free_us.size() ? 0 : next + 1;
    }
  }
  return kRates.launch_us + *std::max_element(free_us.begin(), free_us.end());
}

const ResidentKernel* KernelChoice::choose(const Product& product) const {
  // The widest comes first: narrower tiles load more, and lose more to what arrives meanwhile.
  constexpr double kWorthIt = 0.99;
  const ResidentKernel* best = nullptr;
  double best_us = 0;
  for (const ResidentKernel& kernel : kernels_) {
    if (kernel.kernel->dtype != product.a || kernel.kernel->b_is_column_major != product.b_is_column_major)
      continue;
    const double us = predicted_us(kernel, product);
    if (us == 0 || (best != nullptr && us >= kWorthIt * best_us)) continue;
    best = &kernel;
    best_us = us;
  }
  return best;
}

const ResidentKernel* KernelChoice::find(const Product& product, std::string* why_not) const {
  const Key key = key_of(product);
  const std::lock_guard lock(mutex_);
  const auto* const known = known_.find(key);
  const ResidentKernel* const found = known != nullptr ? *known : known_.insert(key, choose(product));
  if (found == nullptr && why_not != nullptr) {
    *why_not = fmt::format("no native kernel takes {} with b {}-major", to_string(product.a),
                           product.b_is_column_major ? "column" : "row");
  }
  return found;
}

}  // namespace tandem::gemm::cuda
