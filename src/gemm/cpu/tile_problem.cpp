#include "gemm/cpu/tile_problem.hpp"

namespace tandem::gemm::cpu {

namespace {
// A power of two would put all rows of a tile into one set of the first-level cache.
std::int64_t padded(std::int64_t panel_rows) {
  return panel_rows + 16;
}
}  // namespace

bool reads_a_in_place(const TileProblem& problem, PanelForm form) {
  if (problem.a.col_stride != 1) return false;
  return form == PanelForm::kPairs ? problem.k % 2 == 0 : problem.a_dtype == DType::kF32;
}

std::int64_t scratch_floats(std::int64_t panel_rows, const Blocking& blocking) {
  return blocking.rows * (padded(panel_rows) + kPanelColumns);
}

Scratch cut_scratch(float* memory, std::int64_t panel_rows, const Blocking& blocking) {
  return {.a = memory + blocking.rows * kPanelColumns, .a_stride = padded(panel_rows), .sums = memory};
}

}  // namespace tandem::gemm::cpu
