#include "cost/products.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

namespace tandem::cost {
namespace {

struct TileSize {
  std::int64_t rows, columns;
};
/// Of the vendor's kernels.
constexpr std::array kVendorTiles = {TileSize{128, 256}, TileSize{256, 128}, TileSize{128, 192},
                                     TileSize{192, 128}, TileSize{128, 128}, TileSize{64, 256},
                                     TileSize{128, 64},  TileSize{64, 128},  TileSize{64, 64}};

std::int64_t parts(std::int64_t extent, std::int64_t part) {
  return (extent + part - 1) / part;
}

double slowness_of(DType factors, const GpuRates& gpu) {
  if (is_f8(factors)) return gpu.native_slowness.f8;
  return factors == DType::kF16 ? gpu.native_slowness.f16 : gpu.native_slowness.bf16;
}

/// Clusters that a kernel runs at one time, each free again at its own time. It takes them in turns.
class Clusters {
 public:
  explicit Clusters(int at_once) : free_us_(static_cast<std::size_t>(at_once), 0.0) {}
  void run(double not_before_us, double us) {
    double& free = free_us_[next_];
    free = std::max(free, not_before_us) + us;
    next_ = next_ + 1 == free_us_.size() ? 0 : next_ + 1;
  }
  [[nodiscard]] double end_us() const { return *std::max_element(free_us_.begin(), free_us_.end()); }

 private:
  std::vector<double> free_us_;
  std::size_t next_ = 0;
};

/// Behind a product of tiles that owners share: the last wave travels, and all tiles are added.
double shared_tiles_us(const NativeWaves& waves, std::int64_t ctas, const Owners& owners,
                       const GpuRates& gpu) {
  const std::int64_t tiles = parts(waves.m, waves.tile_rows) * parts(waves.n, waves.tile_columns);
  const std::int64_t num_waves = parts(tiles, ctas);
  const std::int64_t last = tiles - (num_waves - 1) * ctas;
  const double share = static_cast<double>(last) / static_cast<double>(tiles);
  const double sent = (owners.own_all ? 1.0 : 1.0 / owners.count) * (owners.count - 1);
  const double bytes = 2.0 * static_cast<double>(waves.m) * static_cast<double>(waves.n) * share * sent;
  const double sum_us = gpu.owner_column_us * static_cast<double>(waves.tile_columns);
  return gpu.first_piece_us / 2 + bytes / gpu.link_bytes_per_us + static_cast<double>(num_waves) * sum_us;
}

}  // namespace

double product_us(double flops, std::int64_t element_bytes, const GpuRates& gpu) {
  if (element_bytes == 1) return flops / gpu.eighth_flops_per_us;
  return flops / (element_bytes == 2 ? gpu.half_flops_per_us : gpu.full_flops_per_us);
}

double vendor_us(std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t element_bytes,
                 const GpuRates& gpu) {
  const double steps = static_cast<double>(k * element_bytes) / (2.0 * kTileDepth);
  double best_us = std::numeric_limits<double>::infinity();
  for (const TileSize& tile : kVendorTiles) {
    const double column_us = gpu.column_us * static_cast<double>(tile.rows) / 128;
    const double deep_us =
        gpu.vendor_slowness * (gpu.tile_us + column_us * static_cast<double>(tile.columns)) * steps;
    for (const std::int64_t cut : {1, 2, 3, 4}) {
      const std::int64_t waves =
          parts(parts(m, tile.rows) * parts(n, tile.columns) * cut, gpu.multiprocessors);
      const double us =
          gpu.vendor.launch_us +
          static_cast<double>(waves) * (gpu.vendor.begin_us + deep_us / static_cast<double>(cut)) +
          (cut > 1 ? gpu.vendor_split_us : 0);
      best_us = std::min(best_us, us);
    }
  }
  // Few rows take what b takes from memory.
  const double elements = 1.0 * m * k + 1.0 * k * n + 1.0 * m * n;
  return std::max(best_us, gpu.vendor.launch_us + elements * element_bytes / gpu.vendor_read_bytes_per_us);
}

double native_tile_us(std::int64_t columns, std::int64_t k, bool is_paired, const GpuRates& gpu,
                      double slowness) {
  const double deep_us = slowness * (gpu.tile_us + gpu.column_us * static_cast<double>(columns));
  const double narrowness = 128 / static_cast<double>(columns);
  const double longer = is_paired ? 1 : 1 + (gpu.native_unpaired - 1) * narrowness * narrowness;
  return gpu.native.begin_us + longer * deep_us * static_cast<double>(k) / kTileDepth;
}

double arrival_us(const Arrival& arrival, std::int64_t step, const GpuRates& gpu) {
  if (step < arrival.complete) return 0;
  const std::int64_t arriving = step - arrival.complete;
  const std::int64_t copied = arriving - arrival.in_pieces + 1;
  if (copied <= 0) {
    const std::int64_t before = arriving / arrival.chunks_at_once * arrival.chunks_at_once;
    return gpu.first_piece_us +
           static_cast<double>(before * arrival.chunk_bytes) / static_cast<double>(gpu.piece_bytes_per_us);
  }
  return gpu.push_start_us +
         static_cast<double>(copied) *
             (gpu.push_us + static_cast<double>(arrival.chunk_bytes) / gpu.link_bytes_per_us);
}

double native_us(const NativeWaves& waves, const GpuRates& gpu) {
  const bool is_paired = waves.cluster_rows * waves.cluster_columns > 1;
  const double tile_us =
      native_tile_us(waves.tile_columns, waves.k, is_paired, gpu, slowness_of(waves.factors, gpu));
  constexpr double kManyTiles = 1 << 16;
  const double tiles = std::ceil(static_cast<double>(waves.m) / static_cast<double>(waves.tile_rows)) *
                       std::ceil(static_cast<double>(waves.n) / static_cast<double>(waves.tile_columns));
  if (tiles > kManyTiles) {
    // So many waves that the last one, and what comes in between, make no difference.
    const std::int64_t ctas = waves.clusters_at_once * waves.cluster_rows * waves.cluster_columns;
    const double arrived_us = arrival_us(waves.arrival, waves.chunks - 1, gpu) + tile_us;
    return gpu.native.launch_us + std::max(tiles / static_cast<double>(ctas) * tile_us, arrived_us);
  }
  const std::int64_t columns = parts(waves.n, waves.tile_columns) / waves.cluster_columns;
  Clusters clusters(waves.clusters_at_once);
  const std::int64_t steps = waves.step_rows == 0 ? 0 : parts(waves.m, waves.step_rows);
  std::int64_t tile_rows = 0;  // up to this step
  std::int64_t taken = 0;      // in rows of clusters
  for (std::int64_t step = 0; step < steps; ++step) {
    const std::int64_t step_rows = std::min(waves.step_rows, waves.m - step * waves.step_rows);
    tile_rows += parts(step_rows, waves.tile_rows);
    // A cluster that lies in two steps is of the later one.
    const bool is_last = step + 1 == steps;
    const std::int64_t rows =
        (tile_rows + (is_last ? waves.cluster_rows - 1 : 0)) / waves.cluster_rows - taken;
    taken += rows;
    const double here_us = arrival_us(waves.arrival, (step + 1) * waves.step_chunks - 1, gpu);
    for (std::int64_t i = 0; i < rows * columns; ++i) clusters.run(here_us, tile_us);
  }
  if (waves.m == 0) return gpu.native.launch_us;
  // b comes from memory, from the start on.
  constexpr double kElementBytes = 2;
  const double b_us =
      kElementBytes * static_cast<double>(waves.n) * static_cast<double>(waves.k) / gpu.read_bytes_per_us;
  return gpu.native.launch_us + std::max(clusters.end_us(), gpu.native.begin_us + b_us);
}

double departing_us(const NativeWaves& waves, const Owners& owners, const GpuRates& gpu) {
  const std::int64_t ctas = waves.clusters_at_once * waves.cluster_rows * waves.cluster_columns;
  if (owners.share_tiles) return native_us(waves, gpu) + shared_tiles_us(waves, ctas, owners, gpu);
  const std::int64_t of_owner = parts(waves.step_rows, waves.tile_rows) * parts(waves.n, waves.tile_columns);
  const double own_waves = std::ceil(static_cast<double>(of_owner) / static_cast<double>(ctas));
  const double sum_us =
      gpu.owner_us + own_waves * gpu.owner_column_us * static_cast<double>(waves.tile_columns);
  // Tiles of peers that run beside the last ones.
  const std::int64_t tiles = of_owner * owners.count;
  const std::int64_t last = tiles - (tiles - 1) / ctas * ctas;
  const std::int64_t exposed = std::max<std::int64_t>(last - of_owner, 0);
  const double exposed_bytes = static_cast<double>(exposed * waves.tile_rows * waves.tile_columns * 2);
  const double multiplied_us = native_us(waves, gpu) + sum_us + exposed_bytes / gpu.link_bytes_per_us;
  // All partials leave one behind the other, from the end of the first wave on; then the last ones are added.
  const bool is_paired = waves.cluster_rows * waves.cluster_columns > 1;
  const double first_us = gpu.native.launch_us + native_tile_us(waves.tile_columns, waves.k, is_paired, gpu,
                                                                slowness_of(waves.factors, gpu));
  constexpr double kElementBytes = 2;
  const double sent_bytes =
      kElementBytes * static_cast<double>(owners.count - 1) * static_cast<double>(waves.step_rows * waves.n);
  const double added_us = gpu.owner_column_us * static_cast<double>(waves.tile_columns);
  return std::max(multiplied_us, first_us + sent_bytes / gpu.partial_bytes_per_us + added_us);
}

}  // namespace tandem::cost
