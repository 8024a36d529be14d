#include "gemm/cuda/vendor_model.hpp"

#include <algorithm>
#include <array>
#include <limits>

namespace tandem::gemm::cuda {
namespace {

constexpr std::int64_t kMultiprocessors = 132;
constexpr double kLaunchUs = 3.8;
constexpr double kBeginUs = 2.5;  // and end of a tile, whatever k
// Of a tile 8192 deep.
constexpr double kTileUs = 4.5;
constexpr double kColumnUs = 0.3;  // of 128 rows
constexpr double kDepth = 8192;
constexpr double kAddUs = 3;  // the parts of k

struct TileSize {
  std::int64_t rows, columns;
};
constexpr std::array kTiles = {TileSize{128, 256}, TileSize{256, 128}, TileSize{128, 192},
                               TileSize{192, 128}, TileSize{128, 128}, TileSize{64, 256},
                               TileSize{128, 64},  TileSize{64, 128},  TileSize{64, 64}};

std::int64_t parts(std::int64_t extent, std::int64_t part) {
  return (extent + part - 1) / part;
}

}  // namespace

double vendor_us(std::int64_t m, std::int64_t n, std::int64_t k) {
  double best_us = std::numeric_limits<double>::infinity();
  for (const TileSize& tile : kTiles) {
    const double column_us = kColumnUs * static_cast<double>(tile.rows) / 128;
    const double deep_us =
        (kTileUs + column_us * static_cast<double>(tile.columns)) * static_cast<double>(k) / kDepth;
    for (const std::int64_t cut : {1, 2, 4}) {
      const std::int64_t waves = parts(parts(m, tile.rows) * parts(n, tile.columns) * cut, kMultiprocessors);
      const double us = kLaunchUs +
                        static_cast<double>(waves) * (kBeginUs + deep_us / static_cast<double>(cut)) +
                        (cut > 1 ? kAddUs : 0);
      best_us = std::min(best_us, us);
    }
  }
  return best_us;
}

}  // namespace tandem::gemm::cuda
