#include "gemm/cuda/sm90/product_grid.hpp"

#include <algorithm>

namespace tandem::gemm::cuda {
namespace {

/// If they are enough to send all pieces.
int senders_of(const AsyncInputLaunch& what, const TileOrder& order, int cluster) {
  if (order.num_clusters() == 0) return 0;
  const int waves = (order.num_clusters() + what.num_clusters - 1) / what.num_clusters;
  const int busy = (order.num_clusters() + waves - 1) / waves;
  return senders_among((what.num_clusters - busy) * cluster, what.push, what.wave_us) / cluster * cluster;
}

/// The launch's, as `senders` CTAs send it that the waves of tiles do not need, or all beside their tiles.
PiecePush push_of(const AsyncInputLaunch& what, const TileOrder& order, int senders, int most_together) {
  PiecePush push = what.push;
  push.senders = senders;
  if (push.peers == 0 || senders > 0) return push;
  int at_once = push.peers;
  if (what.complete_rows > 0) {
    const auto shards = static_cast<int>((what.rows + what.complete_rows - 1) / what.complete_rows);
    at_once = peers_at_once(push.peers, what.num_clusters, order.num_clusters(), shards);
  }
  send_rounds(push, at_once, most_together);
  return push;
}

}  // namespace

ProductGrid product_grid(const AsyncInputLaunch& what, const Tiling& tiling, int most_together) {
  const auto tiles_of = [&](std::int64_t rows) {
    return static_cast<int>((rows + tiling.tile_rows - 1) / tiling.tile_rows);
  };
  const bool is_whole = what.signal_rows % tiling.tile_rows == 0 || what.rows <= what.signal_rows;
  const int cluster = tiling.cluster_rows * tiling.cluster_columns;
  ProductGrid grid;
  grid.batch_rows = is_whole ? static_cast<int>(what.rows) : what.signal_rows;
  grid.batches = is_whole ? 1 : static_cast<int>(what.rows / what.signal_rows);
  grid.tiles_per_signal = is_whole ? tiles_of(what.signal_rows) : 0;
  if (what.complete_end > what.complete_begin) {
    grid.complete_rows = is_whole ? static_cast<int>(what.complete_rows) : what.signal_rows;
    grid.complete_batches = is_whole ? 1 : what.complete_end - what.complete_begin;
  }
  grid.order = TileOrder(what.chunks, what.n, tiling, what.start);
  const bool has_owners = what.partials.is_any();
  grid.tiles_per_chunk = is_whole && !has_owners ? tiles_of(what.chunks.stride()) : 0;
  grid.tiles_per_batch = is_whole || what.chunks.size() > 1 ? 0 : tiles_of(what.signal_rows);
  const int senders = senders_of(what, grid.order, cluster);
  grid.push = push_of(what, grid.order, senders, most_together);
  grid.num_clusters = std::min(what.num_clusters - senders / cluster, grid.order.num_clusters());
  return grid;
}

}  // namespace tandem::gemm::cuda
