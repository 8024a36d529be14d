#include "gemm/cpu/tile_problem.hpp"

namespace tandem::gemm::cpu {

namespace {
// A power of two would put all rows of a tile into one set of the first-level cache.
std::int64_t padded(std::int64_t panel_rows) {
  return panel_rows + 16;
}
}  // namespace

std::int64_t scratch_floats(std::int64_t panel_rows, const Blocking& blocking) {
  return blocking.rows * (padded(panel_rows) + kPanelColumns);
}

Scratch cut_scratch(float* memory, std::int64_t panel_rows, const Blocking& blocking) {
  return {.a = memory + blocking.rows * kPanelColumns, .a_stride = padded(panel_rows), .sums = memory};
}

}  // namespace tandem::gemm::cpu
