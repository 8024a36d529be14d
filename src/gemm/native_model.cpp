#include "gemm/native_model.hpp"

#include <algorithm>

#include "base/format.hpp"
#include "cost/products.hpp"

namespace tandem::gemm {
namespace {

/// How many chunks are on their way in pieces at one time; those behind them come when they are there.
std::int64_t chunks_at_once(const ResidentKernel& kernel, const Product& product, std::int64_t columns) {
  const Chunks& chunks = *product.arrival;
  const std::int64_t of_rank = std::max<std::int64_t>(chunks.complete, 1);
  const auto peers = static_cast<int>(chunks.in_pieces / of_rank);
  if (peers == 0) return 1;
  if (shares_tiles(product)) return chunks.count;
  const Tiling& tiling = kernel.kernel->tiling;
  const std::int64_t rows = (product.m / tiling.tile_rows + tiling.cluster_rows - 1) / tiling.cluster_rows;
  const auto shards = static_cast<int>(chunks.count / of_rank);
  return peers_at_once(peers, kernel.most_clusters, rows * columns, shards) * of_rank;
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

/// Pairs beside each other read b once for each row of tiles: they are for few rows.
bool has_rows_for(const Tiling& tiling, const Product& product) {
  const std::int64_t most = product.owners ? tiling.tile_rows : PieceCut::kMostShared;
  return tiling.cluster_columns == 1 || product.m <= most;
}

}  // namespace

ChunkCut cut_of(const Tiling& tiling, const Product& product) {
  return {.tile_rows = tiling.tile_rows,
          .cluster_rows = tiling.cluster_rows,
          .together = static_cast<int>(product.arrival->most_together()),
          .in_order = product.arrival->in_order,
          .as_one = shares_tiles(product)};
}

/// Steps of k are as many bytes in every type, and take as long.
std::int64_t half_k(const NativeKernel& kernel, std::int64_t k) {
  return k * size_bytes(kernel.dtype) / size_bytes(DType::kBF16);
}

double tile_us(const NativeKernel& kernel, std::int64_t k) {
  const Tiling& tiling = kernel.tiling;
  return cost::native_tile_us(tiling.tile_columns, half_k(kernel, k),
                              tiling.cluster_rows * tiling.cluster_columns > 1);
}

SumsKind sums_of(const Product& product) {
  if (!is_f8(product.a)) return SumsKind::kPlain;
  return product.fast_accum ? SumsKind::kScaled : SumsKind::kPromoted;
}

namespace {

/// Sizes, and the kernel's tiles.
cost::NativeWaves waves_of(const ResidentKernel& kernel, const Product& product) {
  const Tiling& tiling = kernel.kernel->tiling;
  cost::NativeWaves waves;
  waves.m = product.m;
  waves.n = product.n;
  waves.k = half_k(*kernel.kernel, product.k);
  waves.factors = product.a;
  waves.tile_rows = tiling.tile_rows;
  waves.tile_columns = tiling.tile_columns;
  waves.cluster_rows = tiling.cluster_rows;
  waves.cluster_columns = tiling.cluster_columns;
  waves.clusters_at_once = kernel.most_clusters;
  return waves;
}

/// Rows go to their owners, and the own ones come last. The kernel may be another one on every rank.
double departing_us(const ResidentKernel& kernel, const Product& product, const cost::GpuRates& gpu) {
  const Tiling& tiling = kernel.kernel->tiling;
  const ChunkOrder owners = owners_of(product);
  if (!can_exchange_partials(tiling.tile_columns, tiling.cluster_rows * tiling.cluster_columns,
                             kernel.kernel->sums) ||
      !TileOrder::accepts(owners, product.n, tiling) || kernel.most_clusters < 1 ||
      !has_rows_for(tiling, product))
    return 0;
  cost::NativeWaves waves = waves_of(kernel, product);
  waves.chunks = owners.size();
  waves.step_rows = owners.stride();
  waves.arrival = {.complete = owners.size()};
  return cost::departing_us(
      waves,
      {.count = product.owners->count,
       .share_tiles = partial_grid_of(product.m, product.n, *product.owners).shares_tiles,
       .own_all = product.owners->own_all},
      gpu);
}

}  // namespace

ChunkOrder owners_of(const Product& product) {
  const Owners& owners = *product.owners;
  if (partial_grid_of(product.m, product.n, owners).shares_tiles) return {product.m, 1, 0};
  return {product.m, owners.count, (owners.rank + 1) % owners.count};
}

double predicted_us(const ResidentKernel& kernel, const Product& product, const cost::GpuRates& gpu) {
  if (product.owners) return departing_us(kernel, product, gpu);
  const Chunks& chunks = *product.arrival;
  const Tiling& tiling = kernel.kernel->tiling;
  const ChunkParts parts(product.m, static_cast<int>(chunks.count), 0, cut_of(tiling, product));
  if (!accepts(tiling, parts, product.n) || kernel.most_clusters < 1) return 0;
  if (!has_rows_for(tiling, product)) return 0;
  const ChunkOrder signals(product.m, static_cast<int>(product.arrival->count), 0);
  const ChunkOrder order = steps_of(product, parts.parts());
  const std::int64_t columns =
      (product.n + tiling.tile_columns - 1) / tiling.tile_columns / tiling.cluster_columns;
  const bool is_one = shares_tiles(product);  // all chunks come at one time, the own ones too
  cost::NativeWaves waves = waves_of(kernel, product);
  waves.chunks = chunks.count;
  waves.step_rows = order.stride();
  waves.step_chunks = is_one ? chunks.count : signals.stride() == 0 ? 1 : order.stride() / signals.stride();
  waves.arrival = {.chunk_bytes = signals.stride() * product.k * size_bytes(product.a),
                   .complete = is_one ? 0 : chunks.complete,
                   .in_pieces = is_one ? chunks.count : chunks.in_pieces,
                   .chunks_at_once = chunks_at_once(kernel, product, columns)};
  return cost::native_us(waves, gpu);
}

bool takes(const NativeKernel& kernel, const Product& product) {
  return kernel.dtype == product.a && kernel.dtype == product.b && kernel.out == product.out &&
         kernel.b_is_column_major == product.b_is_column_major && kernel.sums == sums_of(product);
}

const ResidentKernel* KernelChoice::choose(const Product& product) const {
  // The widest comes first: narrower tiles load more, and lose more to what arrives meanwhile.
  constexpr double kWorthIt = 0.99;
  const ResidentKernel* best = nullptr;
  double best_us = 0;
  for (const ResidentKernel& kernel : kernels_) {
    if (!takes(*kernel.kernel, product)) continue;
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
    *why_not = fmt::format("no native kernel takes {} * {} -> {} with b {}-major", to_string(product.a),
                           to_string(product.b), to_string(product.out),
                           product.b_is_column_major ? "column" : "row");
  }
  return found;
}

}  // namespace tandem::gemm
