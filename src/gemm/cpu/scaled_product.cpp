#include "gemm/cpu/scaled_product.hpp"

#include <algorithm>
#include <limits>

#include "base/convert_elements.hpp"
#include "base/try.hpp"
#include "gemm/cpu/scratch.hpp"
#include "gemm/cpu/tile_product.hpp"
#include "gemm/operand_checks.hpp"
#include "gemm/row_dims.hpp"

namespace tandem::gemm::cpu {
namespace {

// The sums of a block, and those of one block of k, stay in the second-level cache.
constexpr std::int64_t kRowsAtOnce = 96;
constexpr std::int64_t kColumnsAtOnce = kPanelColumns * 8;

Rows rows_of(const TensorView& view) {
  Rows rows{.data = view.data, .strides = {}, .col_stride = view.dim() == 0 ? 0 : view.strides.back()};
  for (int d = 0; d < view.dim() - 1; ++d) rows.strides[static_cast<std::size_t>(d)] = view.stride(d);
  return rows;
}

Rows scales_of_a(Scale kind, const TensorView& view) {
  if (kind == Scale::kTensor) return {.data = view.data, .strides = {}, .col_stride = 0};
  Rows scales = rows_of(view);
  if (!is_along_k(kind)) scales.col_stride = 0;
  return scales;
}

ColumnScales scales_of_b(Scale kind, const TensorView& view) {
  ColumnScales scales{.data = static_cast<const float*>(view.data)};
  if (kind == Scale::kTensor) return scales;
  scales.stride = view.stride(1);
  if (is_along_k(kind)) scales.block_stride = view.stride(0);
  return scales;
}

Columns columns_of(const TensorView& view) {
  return {.data = view.data, .stride = view.numel() == 1 ? 0 : view.strides.back()};
}

void merge_rows(ScaledProduct& product) {
  const std::array strides = {product.a.strides.data(), product.a_scale.strides.data(),
                              product.out.strides.data(), product.addend.strides.data()};
  product.num_row_dims =
      static_cast<std::int8_t>(merge_row_dims(product.row_sizes.data(), product.num_row_dims, strides));
}

std::int64_t num_rows(const ScaledProduct& product) {
  std::int64_t rows = 1;
  for (int d = 0; d < product.num_row_dims; ++d) rows *= product.row_sizes[static_cast<std::size_t>(d)];
  return rows;
}

/// One block of the result: rows [row, row + rows) and columns [col, col + cols).
struct Block {
  std::int64_t row;
  std::int64_t rows;
  std::int64_t col;
  std::int64_t cols;
};

/// The walk over the blocks of one product, on one thread's scratch memory.
class BlockLoop {
 public:
  BlockLoop(const ScaledProduct& product, const TileKernels& kernels)
      : product_(product),
        kernels_(kernels),
        rows_(std::min(num_rows(product), kRowsAtOnce)),
        cols_(std::min(product.n, kColumnsAtOnce)),
        whole_(whole_of(product)),
        form_(kernels.form_of(whole_)),
        panel_rows_(rows_of_panel(product.k, form_)),
        panels_at_once_(product.packed_b.data != nullptr ? panels_of(product.n)
                                                         : panels_at_once(product.n, product.k, form_)),
        blocking_(choose_blocking(panel_rows_)),
        is_matrix_(product.num_row_dims == 1) {}

  Result<void> run();

 private:
  static TileProblem whole_of(const ScaledProduct& product);
  Result<void> take_scratch();
  void multiply(const Block& block, const Panels& panels);
  void add_scaled(const Block& block, std::int64_t scale_idx);
  [[nodiscard]] Matrix rows_of_a(const Block& block);
  void load_columns(const Block& block);
  void load_b_scales(const Block& block, std::int64_t scale_idx);
  [[nodiscard]] float a_scale_at(std::int64_t row, std::int64_t scale_idx) const;
  void finish_row(const Block& block, std::int64_t row);
  [[nodiscard]] std::int64_t offset_of(const Rows& rows, std::int64_t row) const;

  const ScaledProduct& product_;
  const TileKernels& kernels_;
  std::int64_t rows_, cols_;
  TileProblem whole_;  // without a and out
  PanelForm form_;
  std::int64_t panel_rows_, panels_at_once_;
  Blocking blocking_;
  bool is_matrix_;            // the rows of a are those of a matrix
  float* packed_ = nullptr;   // [panels_at_once_] panels
  float* a_ = nullptr;        // [rows_, k] of a's type, unless is_matrix_
  float* sums_ = nullptr;     // [rows_, cols_]
  float* partial_ = nullptr;  // [rows_, cols_], of one block of k; only if scales differ along k
  float* b_scale_ = nullptr;  // [cols_]
  float* bias_ = nullptr;     // [cols_]
  float* addend_ = nullptr;   // [cols_], of one row
  Scratch scratch_;
};

TileProblem BlockLoop::whole_of(const ScaledProduct& product) {
  TileProblem whole;
  whole.n = product.n;
  whole.k = product.k;
  whole.b = product.b;
  whole.a_dtype = product.a_dtype;
  whole.b_dtype = product.b_dtype;
  return whole;
}

Result<void> BlockLoop::take_scratch() {
  const std::int64_t packed =
      product_.packed_b.data != nullptr ? 0 : panels_at_once_ * panel_floats(product_.k, form_);
  const std::int64_t a = is_matrix_ ? 0 : rows_ * product_.k * size_bytes(product_.a_dtype) / 4 + 1;
  const std::int64_t partial = product_.is_scaled_along_k() ? rows_ * cols_ : 0;
  const std::int64_t of_kernel = scratch_floats(panel_rows_, blocking_);
  TANDEM_ASSIGN(float* memory, thread_scratch(packed + of_kernel + a + rows_ * cols_ + partial + 3 * cols_));
  const auto take = [&](std::int64_t count) {
    float* const piece = memory;
    memory += count;
    return piece;
  };
  packed_ = take(packed);
  scratch_ = cut_scratch(take(of_kernel), panel_rows_, blocking_);
  a_ = take(a);
  sums_ = take(rows_ * cols_);
  partial_ = take(partial);
  b_scale_ = take(cols_);
  bias_ = take(cols_);
  addend_ = take(cols_);
  return {};
}

Result<void> BlockLoop::run() {
  TANDEM_TRY(take_scratch());
  const std::int64_t all_rows = num_rows(product_);
  const std::int64_t packed_cols = panels_at_once_ * kPanelColumns;
  const std::int64_t stride = panel_floats(product_.k, form_);
  for (std::int64_t first = 0; first < product_.n; first += packed_cols) {
    const std::int64_t end = std::min(first + packed_cols, product_.n);
    Panels panels = product_.packed_b;
    if (panels.data == nullptr) {
      kernels_.pack(whole_, first, end - first, packed_);
      panels = {packed_, stride, form_};
    }
    for (std::int64_t row = 0; row < all_rows; row += rows_) {
      for (std::int64_t col = first; col < end; col += cols_) {
        const Block block{row, std::min(rows_, all_rows - row), col, std::min(cols_, end - col)};
        multiply(block, from_panel(panels, (col - first) / kPanelColumns));
        load_columns(block);
        for (std::int64_t i = 0; i < block.rows; ++i) finish_row(block, i);
      }
    }
  }
  return {};
}

/// The sums of a block; those of each block of k by itself, where scales differ along k.
void BlockLoop::multiply(const Block& block, const Panels& panels) {
  static_assert(kScaleBlock % 2 == 0);
  TileProblem tile = whole_;
  tile.m = block.rows;
  tile.n = block.cols;
  tile.a = rows_of_a(block);
  tile.out = {.data = sums_, .row_stride = cols_, .col_stride = 1};
  if (!product_.is_scaled_along_k()) return kernels_.multiply(tile, panels, blocking_, scratch_);
  std::fill(sums_, sums_ + rows_ * cols_, 0.0F);
  tile.out.data = partial_;
  for (std::int64_t at = 0; at < product_.k; at += kScaleBlock) {
    tile.k = std::min(kScaleBlock, product_.k - at);
    kernels_.multiply(tile, from_step(panels, at), blocking_, scratch_);
    add_scaled(block, at / kScaleBlock);
    tile.a.data =
        static_cast<std::byte*>(tile.a.data) + kScaleBlock * tile.a.col_stride * size_bytes(product_.a_dtype);
  }
}

/// sum += partial * (a_scale * b_scale).
void BlockLoop::add_scaled(const Block& block, std::int64_t scale_idx) {
  load_b_scales(block, scale_idx);
  for (std::int64_t i = 0; i < block.rows; ++i) {
    const float a_scale = a_scale_at(block.row + i, scale_idx);
    const float* const partial = partial_ + i * cols_;
    float* const sums = sums_ + i * cols_;
    for (std::int64_t c = 0; c < block.cols; ++c) sums[c] += partial[c] * (a_scale * b_scale_[c]);
  }
}

/// In place where they are those of a matrix, else copied.
Matrix BlockLoop::rows_of_a(const Block& block) {
  const Rows& a = product_.a;
  if (is_matrix_) {
    const TensorView first = row_view(a.data, offset_of(a, block.row), 0, 0, product_.a_dtype);
    return {.data = first.data, .row_stride = a.strides[0], .col_stride = a.col_stride};
  }
  for (std::int64_t i = 0; i < block.rows; ++i) {
    convert_elements(
        row_view(a.data, offset_of(a, block.row + i), product_.k, a.col_stride, product_.a_dtype),
        row_view(a_, i * product_.k, product_.k, 1, product_.a_dtype));
  }
  return {.data = a_, .row_stride = product_.k, .col_stride = 1};
}

void BlockLoop::load_columns(const Block& block) {
  if (!product_.is_scaled_along_k()) load_b_scales(block, 0);
  const Columns& bias = product_.bias;
  if (bias.data == nullptr) return;
  convert_elements(row_view(bias.data, block.col * bias.stride, block.cols, bias.stride, product_.bias_dtype),
                   row_view(bias_, 0, block.cols, 1, DType::kF32));
}

void BlockLoop::load_b_scales(const Block& block, std::int64_t scale_idx) {
  const ColumnScales& scales = product_.b_scale;
  if (scales.data == nullptr) {
    std::fill_n(b_scale_, block.cols, 1.0F);
    return;
  }
  const float* const from = scales.data + scale_idx * scales.block_stride;
  const std::int64_t columns_each = product_.b_scale_kind == Scale::kBlock128 ? kScaleBlock : 1;
  for (std::int64_t c = 0; c < block.cols; ++c)
    b_scale_[c] = from[(block.col + c) / columns_each * scales.stride];
}

float BlockLoop::a_scale_at(std::int64_t row, std::int64_t scale_idx) const {
  const Rows& scale = product_.a_scale;
  if (scale.data == nullptr) return 1;
  return static_cast<const float*>(scale.data)[offset_of(scale, row) + scale_idx * scale.col_stride];
}

/// ((sum * a_scale) * b_scale + bias) * result_scale + addend, one form of NaN, one rounding.
void BlockLoop::finish_row(const Block& block, std::int64_t row) {
  float* const values = sums_ + row * cols_;
  if (product_.a_scale.data != nullptr && !product_.is_scaled_along_k()) {
    const float scale = a_scale_at(block.row + row, 0);
    for (std::int64_t c = 0; c < block.cols; ++c) values[c] *= scale;
  }
  if (product_.b_scale.data != nullptr && !product_.is_scaled_along_k()) {
    for (std::int64_t c = 0; c < block.cols; ++c) values[c] *= b_scale_[c];
  }
  if (product_.bias.data != nullptr) {
    for (std::int64_t c = 0; c < block.cols; ++c) values[c] += bias_[c];
  }
  if (product_.result_scale != nullptr) {
    for (std::int64_t c = 0; c < block.cols; ++c) values[c] *= *product_.result_scale;
  }
  const auto part_of = [&](const Rows& rows, DType dtype) {
    return row_view(rows.data, offset_of(rows, block.row + row) + block.col * rows.col_stride, block.cols,
                    rows.col_stride, dtype);
  };
  if (product_.addend.data != nullptr) {
    convert_elements(part_of(product_.addend, product_.addend_dtype),
                     row_view(addend_, 0, block.cols, 1, DType::kF32));
    for (std::int64_t c = 0; c < block.cols; ++c) values[c] += addend_[c];
  }
  for (std::int64_t c = 0; c < block.cols; ++c) {
    if (values[c] != values[c]) values[c] = std::numeric_limits<float>::quiet_NaN();
  }
  convert_elements(row_view(values, 0, block.cols, 1, DType::kF32),
                   part_of(product_.out, product_.out_dtype));
}

std::int64_t BlockLoop::offset_of(const Rows& rows, std::int64_t row) const {
  return row_offset(product_.row_sizes.data(), product_.num_row_dims, rows.strides.data(), row);
}

}  // namespace

ScaledProduct scaled_product_of(const Product& product, const ProductArgs& args) {
  ScaledProduct scaled;
  scaled.n = product.n;
  scaled.k = product.k;
  scaled.num_row_dims = static_cast<std::int8_t>(args.a->dim() - 1);
  for (int d = 0; d < scaled.num_row_dims; ++d)
    scaled.row_sizes[static_cast<std::size_t>(d)] = args.a->size(d);
  scaled.a_dtype = product.a;
  scaled.b_dtype = product.b;
  scaled.out_dtype = product.out;
  scaled.a = rows_of(*args.a);
  scaled.a_scale_kind = product.a_scale;
  scaled.b_scale_kind = product.b_scale;
  if (product.a_scale != Scale::kNone) scaled.a_scale = scales_of_a(product.a_scale, *args.a_scale);
  scaled.out = rows_of(*args.out);
  if (args.addend != nullptr) {
    scaled.addend = rows_of(*args.addend);
    scaled.addend_dtype = args.addend->dtype;
  }
  scaled.b = {.data = args.b->data, .row_stride = args.b->stride(0), .col_stride = args.b->stride(1)};
  if (product.b_scale != Scale::kNone) scaled.b_scale = scales_of_b(product.b_scale, *args.b_scale);
  if (args.bias != nullptr) {
    scaled.bias = columns_of(*args.bias);
    scaled.bias_dtype = args.bias->dtype;
  }
  if (args.result_scale != nullptr) scaled.result_scale = static_cast<const float*>(args.result_scale->data);
  merge_rows(scaled);
  return scaled;
}

Result<void> run(const ScaledProduct& product, const TileKernels& kernels) {
  return BlockLoop(product, kernels).run();
}

}  // namespace tandem::gemm::cpu
