#include "gemm/cpu/tile_product.hpp"

#include <algorithm>

#include "base/format.hpp"
#include "base/try.hpp"
#include "gemm/cpu/register_tile.hpp"
#include "gemm/cpu/scratch.hpp"

namespace tandem::gemm::cpu {
namespace {

TileProblem columns_of(const TileProblem& whole, std::int64_t first, std::int64_t count) {
  TileProblem part = whole;
  part.n = count;
  const std::int64_t element = size_bytes(whole.out_dtype);
  part.out.data = static_cast<std::byte*>(whole.out.data) + first * whole.out.col_stride * element;
  if (whole.bias != nullptr)
    part.bias = static_cast<const std::byte*>(whole.bias) + first * whole.bias_stride * element;
  return part;
}

}  // namespace

Blocking choose_blocking(std::int64_t panel_rows) {
  constexpr std::int64_t kCopiedFloats = std::int64_t{2} << 20;
  const std::int64_t tiles = kCopiedFloats / (std::max<std::int64_t>(panel_rows, 1) * kTileRows);
  return {.rows = kTileRows * std::clamp<std::int64_t>(tiles, 16, 64)};
}

std::int64_t panels_at_once(std::int64_t n, std::int64_t k, PanelForm form) {
  constexpr std::int64_t kFloats = std::int64_t{2} << 20;
  const std::int64_t fitting = kFloats / std::max<std::int64_t>(panel_floats(k, form), 1);
  return std::max<std::int64_t>(std::min(fitting, panels_of(n)), 1);
}

Result<void> run(const TileProblem& problem, const TileKernels& kernels) {
  if (problem.packed_b.data != nullptr) {
    TANDEM_ASSIGN(const RowProduct whole, RowProduct::make(problem, kernels));
    return whole.multiply(problem);
  }
  const PanelForm form = kernels.form_of(problem);
  const std::int64_t panel = panel_floats(problem.k, form);
  const std::int64_t rows = rows_of_panel(problem.k, form);
  // Columns that are contiguous are packed one panel at a time, which is multiplied while it is near.
  const bool by_panels = problem.b.row_stride == 1 && reads_a_in_place(problem, form);
  const std::int64_t at_once = by_panels ? 1 : panels_at_once(problem.n, problem.k, form);
  const Blocking blocking = choose_blocking(rows);
  TANDEM_ASSIGN(float* memory, thread_scratch(at_once * panel + scratch_floats(rows, blocking)));
  const Scratch scratch = cut_scratch(memory + at_once * panel, rows, blocking);
  for (std::int64_t col = 0; col < problem.n; col += at_once * kPanelColumns) {
    const std::int64_t cols = std::min(at_once * kPanelColumns, problem.n - col);
    kernels.pack(problem, col, cols, memory);
    kernels.multiply(columns_of(problem, col, cols), {memory, panel, form}, blocking, scratch);
  }
  return {};
}

Result<std::shared_ptr<const PackedOperand>> PackedPanels::make(const TensorView& b,
                                                                const TileKernels& kernels,
                                                                std::string_view implementation) {
  TileProblem problem;
  problem.k = b.size(0);
  problem.n = b.size(1);
  problem.b = {.data = b.data, .row_stride = b.stride(0), .col_stride = b.stride(1)};
  problem.a_dtype = b.dtype;
  problem.b_dtype = b.dtype;
  const PanelForm form = kernels.form_of(problem);
  const std::int64_t stride = panel_floats(problem.k, form);
  const std::int64_t num_floats = std::max<std::int64_t>(panels_of(problem.n) * stride, 1);
  const std::int64_t num_bytes = num_floats * static_cast<std::int64_t>(sizeof(float));
  auto packed = std::shared_ptr<PackedPanels>(new PackedPanels(b, implementation));
  packed->memory_ = allocate_floats(num_floats);
  float* const memory = packed->memory_.get();
  if (memory == nullptr)
    return failf(ErrorCode::kOutOfMemory, "pack_b: no {} bytes for a packed b", num_bytes);
  kernels.pack(problem, 0, problem.n, memory);
  packed->num_bytes_ = num_bytes;
  packed->panels_ = {memory, stride, form};
  packed->set_memory(memory);
  return packed;
}

Result<RowProduct> RowProduct::make(const TileProblem& whole, const TileKernels& kernels) {
  RowProduct product(kernels);
  product.panels_ = whole.packed_b;
  const bool is_packed = product.panels_.data != nullptr;
  const PanelForm form = kernels.form_of(whole);
  const std::int64_t stride = panel_floats(whole.k, form);
  const std::int64_t to_pack = is_packed ? 0 : panels_of(whole.n) * stride;
  if (to_pack > kMostPackedBytes / static_cast<std::int64_t>(sizeof(float))) return product;
  const std::int64_t rows = rows_of_panel(whole.k, form);
  product.blocking_ = choose_blocking(rows);
  TANDEM_ASSIGN(float* memory, thread_scratch(to_pack + scratch_floats(rows, product.blocking_)));
  product.scratch_ = cut_scratch(memory + to_pack, rows, product.blocking_);
  if (is_packed) return product;
  product.panels_ = {memory, stride, form};
  kernels.pack(whole, 0, whole.n, memory);
  return product;
}

Result<void> RowProduct::multiply(const TileProblem& rows) const {
  if (panels_.data == nullptr) return run(rows, *kernels_);
  kernels_->multiply(rows, panels_, blocking_, scratch_);
  return {};
}

}  // namespace tandem::gemm::cpu
