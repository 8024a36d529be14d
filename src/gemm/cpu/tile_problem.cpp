#include "gemm/cpu/tile_problem.hpp"

#include <algorithm>

#include "gemm/cpu/register_tile.hpp"

namespace tandem::gemm::cpu {

namespace {
// A power of two would put all rows of a tile into one set of the first-level cache.
std::int64_t padded(std::int64_t panel_rows) {
  return panel_rows + 16;
}
}  // namespace

Blocking choose_blocking(std::int64_t panel_rows) {
  constexpr std::int64_t kCopiedFloats = std::int64_t{2} << 20;
  const std::int64_t tiles = kCopiedFloats / (std::max<std::int64_t>(panel_rows, 1) * kTileRows);
  return {.rows = kTileRows * std::clamp<std::int64_t>(tiles, 16, 64)};
}

std::int64_t scratch_floats(std::int64_t panel_rows, const Blocking& blocking) {
  return blocking.rows * (padded(panel_rows) + kPanelColumns);
}

Scratch cut_scratch(float* memory, std::int64_t panel_rows, const Blocking& blocking) {
  return {.a = memory + blocking.rows * kPanelColumns, .a_stride = padded(panel_rows), .sums = memory};
}

}  // namespace tandem::gemm::cpu
