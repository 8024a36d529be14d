#include "gemm/cpu/tile_problem.hpp"

#include <algorithm>

#include "base/try.hpp"
#include "gemm/cpu/scratch.hpp"
#include "gemm/cpu/tile_loop.hpp"

namespace tandem::gemm::cpu {

namespace {
// A power of two would put all rows of a tile into one set of the first-level cache.
std::int64_t padded_depth(const Blocking& blocking) {
  return blocking.depth + 16;
}
}  // namespace

Blocking choose_blocking(std::int64_t k) {
  constexpr std::int64_t kPackedBytes = std::int64_t{8} << 20;
  const std::int64_t panel_bytes = std::max<std::int64_t>(k, 1) * kPanelColumns * 4;
  Blocking blocking;
  blocking.panels = std::clamp<std::int64_t>(kPackedBytes / panel_bytes, 1, kMaxPanels);
  return blocking;
}

std::int64_t scratch_floats(std::int64_t k, const Blocking& blocking) {
  const std::int64_t cols = blocking.panels * kPanelColumns;
  return cols * k + blocking.rows * padded_depth(blocking) + blocking.rows * cols + cols;
}

Scratch cut_scratch(float* memory, std::int64_t k, const Blocking& blocking) {
  const std::int64_t cols = blocking.panels * kPanelColumns;
  Scratch scratch;
  scratch.packed_b = memory;
  scratch.sums = scratch.packed_b + cols * k;
  scratch.bias = scratch.sums + blocking.rows * cols;
  scratch.widened_a = scratch.bias + cols;
  scratch.widened_a_stride = padded_depth(blocking);
  return scratch;
}

Result<void> run(const TileProblem& problem, TileKernel kernel) {
  const Blocking blocking = choose_blocking(problem.k);
  TANDEM_ASSIGN(float* memory, thread_scratch(scratch_floats(problem.k, blocking)));
  kernel(problem, blocking, cut_scratch(memory, problem.k, blocking));
  return {};
}

}  // namespace tandem::gemm::cpu
