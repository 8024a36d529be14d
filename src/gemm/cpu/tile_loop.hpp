#pragma once

// The loops around the register tile, for one pair of types. Templates over an Isa: see register_tile.hpp.

#include <cstdint>
#include <tandem/base/numeric.hpp>

#include "gemm/cpu/register_tile.hpp"
#include "gemm/cpu/tile_kernels.hpp"
#include "gemm/cpu/widen.hpp"

namespace tandem::gemm::cpu {

template <class Isa>
constexpr std::int64_t smaller(std::int64_t x, std::int64_t y) {
  return x < y ? x : y;
}

/// Packs columns of b, of type B.
template <class Isa, PanelForm kForm, class B>
class ColumnPacker {
 public:
  ColumnPacker(const TileProblem& problem, std::int64_t first, std::int64_t count, float* to)
      : b_(problem.b),
        from_(static_cast<const B*>(b_.data) + first * b_.col_stride),
        count_(count),
        k_(problem.k),
        to_(to) {}

  void run() const {
    if (k_ == 0) return;
    // Rows of b that are contiguous are read as far as they go, a few at a time. The processor does not
    // foresee the next ones, which lie on other pages.
    const std::int64_t whole = kForm == PanelForm::kPairs ? k_ / 2 : k_;
    const std::int64_t rows_at_once = b_.col_stride == 1 ? kFewRows : whole;
    for (std::int64_t row = 0; row < whole; row += rows_at_once) {
      const std::int64_t rows = smaller<Isa>(rows_at_once, whole - row);
      for (std::int64_t c = 0; c < count_; c += kPanelColumns) {
        if (b_.col_stride == 1) fetch(row + 2 * kFewRows, c);
        copy(row, rows, c);
      }
    }
    for (std::int64_t c = 0; c < count_; c += kPanelColumns) fill_up(c);
  }

 private:
  static constexpr std::int64_t kFewRows = 4;

  [[nodiscard]] std::int64_t columns_of(std::int64_t c) const {
    return smaller<Isa>(kPanelColumns, count_ - c);
  }
  [[nodiscard]] float* row_of_panel(std::int64_t c, std::int64_t row) const {
    return to_ + c * rows_of_panel(k_, kForm) + row * kPanelColumns;
  }

  /// A few rows of a panel that are contiguous.
  void fetch(std::int64_t row, std::int64_t c) const {
    constexpr std::int64_t kLine = 64 / static_cast<std::int64_t>(sizeof(B));
    constexpr std::int64_t kStepsOfRow = kForm == PanelForm::kPairs ? 2 : 1;
    for (std::int64_t k = row * kStepsOfRow; k < smaller<Isa>((row + kFewRows) * kStepsOfRow, k_); ++k) {
      for (std::int64_t i = 0; i < columns_of(c); i += kLine)
        __builtin_prefetch(from_ + k * b_.row_stride + c + i);
    }
  }

  void copy(std::int64_t row, std::int64_t rows, std::int64_t c) const {
    const Target target{rows, columns_of(c), row_of_panel(c, row), kPanelColumns};
    if constexpr (kForm == PanelForm::kPairs) {
      const B* const from = from_ + 2 * row * b_.row_stride + c * b_.col_stride;
      copy_block<Isa>(PairsOfRows<Isa>{from, b_.row_stride, b_.col_stride}, target);
    } else {
      const B* const from = from_ + row * b_.row_stride + c * b_.col_stride;
      copy_block<Isa>(Elements<Isa, B>{from, b_.row_stride, b_.col_stride}, target);
    }
  }

  /// What an odd k leaves, and columns up to a whole vector.
  void fill_up(std::int64_t c) const {
    const std::int64_t rows = rows_of_panel(k_, kForm);
    const std::int64_t used = columns_of(c);
    float* const last = row_of_panel(c, rows - 1);
    if constexpr (kForm == PanelForm::kPairs) {
      const B* const from = from_ + (k_ - 1) * b_.row_stride + c * b_.col_stride;
      for (std::int64_t i = 0; k_ % 2 == 1 && i < used; ++i)
        last[i] = Isa::pair(from[i * b_.col_stride].bits, 0);
    } else {
      for (std::int64_t i = 0; rows > k_ && i < used; ++i) last[i] = 0.0F;
    }
    if (used % Isa::kWidth == 0) return;
    const std::int64_t whole = used + Isa::kWidth - used % Isa::kWidth;
    for (std::int64_t row = 0; row < rows; ++row) {
      for (std::int64_t i = used; i < whole; ++i) row_of_panel(c, row)[i] = 0.0F;
    }
  }

  Matrix b_;
  const B* from_;
  std::int64_t count_;
  std::int64_t k_;
  float* to_;
};

/// Blocks of rows by panels.
template <class Isa, PanelForm kForm, class A, class Out>
class TileLoop {
 public:
  TileLoop(const TileProblem& problem, const Panels& panels, const Blocking& blocking, const Scratch& scratch)
      : problem_(problem),
        panels_(panels),
        blocking_(blocking),
        scratch_(scratch),
        panel_rows_(rows_of_panel(problem.k, kForm)) {}

  void run() {
    for (std::int64_t row = 0; row < problem_.m; row += blocking_.rows) {
      const std::int64_t rows = smaller<Isa>(blocking_.rows, problem_.m - row);
      take_a(row, rows);
      const float* panel = panels_.data;
      for (std::int64_t col = 0; col < problem_.n; col += kPanelColumns, panel += panels_.stride) {
        const std::int64_t cols = smaller<Isa>(kPanelColumns, problem_.n - col);
        load_bias(col, cols);
        if (problem_.accumulate) load_sums(row, rows, col, cols);
        std::int64_t at = 0;
        do {
          const std::int64_t depth = smaller<Isa>(blocking_.depth, panel_rows_ - at);
          multiply({row, rows, col, cols}, panel, at, depth);
          at += depth;
        } while (at < panel_rows_);
      }
    }
  }

 private:
  struct Block {
    std::int64_t row;
    std::int64_t rows;
    std::int64_t col;
    std::int64_t cols;
  };

  /// Where the rows of a are, as the tile reads them: in place, or copied.
  void take_a(std::int64_t row, std::int64_t rows) {
    const Matrix& a = problem_.a;
    const A* const from = static_cast<const A*>(a.data) + row * a.row_stride;
    const std::int64_t k = problem_.k;
    if (reads_a_in_place(problem_, kForm)) {
      a_ = reinterpret_cast<const std::byte*>(from);
      a_stride_ = a.row_stride * static_cast<std::int64_t>(sizeof(A));
      return;
    }
    const std::int64_t stride = scratch_.a_stride;
    a_ = reinterpret_cast<const std::byte*>(scratch_.a);
    a_stride_ = stride * static_cast<std::int64_t>(sizeof(float));
    if constexpr (kForm == PanelForm::kPairs) {
      copy_block<Isa>(PairsOfColumns<Isa>{from, a.row_stride, a.col_stride},
                      Target{rows, k / 2, scratch_.a, stride});
      for (std::int64_t r = 0; k % 2 == 1 && r < rows; ++r)
        scratch_.a[r * stride + k / 2] = Isa::pair(from[r * a.row_stride + (k - 1) * a.col_stride].bits, 0);
    } else {
      copy_block<Isa>(Elements<Isa, A>{from, a.row_stride, a.col_stride},
                      Target{rows, k, scratch_.a, stride});
      for (std::int64_t r = 0; panel_rows_ > k && r < rows; ++r) scratch_.a[r * stride + k] = 0.0F;
    }
  }

  void load_bias(std::int64_t col, std::int64_t cols) {
    if (problem_.bias == nullptr) return;
    const auto* const bias = static_cast<const Out*>(problem_.bias) + col * problem_.bias_stride;
    copy_block<Isa>(Elements<Isa, Out>{bias, 0, problem_.bias_stride}, Target{1, cols, bias_, 0});
  }

  void load_sums(std::int64_t row, std::int64_t rows, std::int64_t col, std::int64_t cols) {
    copy_block<Isa>(Elements<Isa, Out>{out_at(row, col), problem_.out.row_stride, problem_.out.col_stride},
                    Target{rows, cols, scratch_.sums, kPanelColumns});
  }

  /// Rows of a panel's part by all rows of the block. The last part gives their results.
  void multiply(const Block& block, const float* panel, std::int64_t at, std::int64_t depth) {
    const bool ends = at + depth == panel_rows_;
    for (std::int64_t r = 0; r < block.rows; r += kTileRows) {
      const std::int64_t rows = smaller<Isa>(kTileRows, block.rows - r);
      float* const sums = scratch_.sums + r * kPanelColumns;
      if (ends) fetch_out(block.row + r, rows, block.col, block.cols);
      tile_row<Isa, kForm>(static_cast<int>(rows), block.cols,
                           TileArgs{.panel_rows = depth,
                                    .a = a_ + r * a_stride_ + at * static_cast<std::int64_t>(sizeof(float)),
                                    .a_stride = a_stride_,
                                    .b = panel + at * kPanelColumns,
                                    .sums = sums,
                                    .begins = at == 0 && !problem_.accumulate});
      for (std::int64_t i = 0; ends && i < rows; ++i)
        write_row(sums + i * kPanelColumns, block.row + r + i, block.col, block.cols);
    }
  }

  /// Lines that a tile's results go to arrive while it is multiplied.
  void fetch_out(std::int64_t row, std::int64_t rows, std::int64_t col, std::int64_t cols) const {
    if (problem_.out.col_stride != 1) return;
    constexpr std::int64_t kLine = 64 / static_cast<std::int64_t>(sizeof(Out));
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t c = 0; c < cols; c += kLine) __builtin_prefetch(out_at(row + r, col + c), 1);
    }
  }

  void write_row(float* sums, std::int64_t row, std::int64_t col, std::int64_t cols) {
    const std::int64_t stride = problem_.out.col_stride;
    Out* const out = out_at(row, col);
    if (stride == 1) return narrow_row(sums, cols, out);
    Out narrow[kPanelColumns];
    narrow_row(sums, cols, narrow);
    for (std::int64_t c = 0; c < cols; ++c) out[c * stride] = narrow[c];
  }

  // Bias, one form of NaN, one rounding. The last vector is finished in `sums`, which has room for all of it.
  void narrow_row(float* sums, std::int64_t cols, Out* out) {
    for (std::int64_t c = 0; c < cols; c += Isa::kWidth) {
      typename Isa::Vec value = Isa::load(sums + c);
      if (problem_.bias != nullptr) value = Isa::add(value, Isa::load(bias_ + c));
      value = Isa::canonical(value);
      if (c + Isa::kWidth <= cols) {
        Isa::store(out + c, value);
      } else {
        Isa::store(sums + c, value);
        for (std::int64_t i = c; i < cols; ++i) Isa::store_one(out + i, sums[i]);
      }
    }
  }

  [[nodiscard]] Out* out_at(std::int64_t row, std::int64_t col) const {
    return static_cast<Out*>(problem_.out.data) + row * problem_.out.row_stride +
           col * problem_.out.col_stride;
  }

  TileProblem problem_;
  Panels panels_;
  Blocking blocking_;
  Scratch scratch_;
  std::int64_t panel_rows_;
  const std::byte* a_ = nullptr;
  std::int64_t a_stride_ = 0;
  float bias_[kPanelColumns] = {};
};

/// Of products that add in pairs.
template <class PairIsa>
void pack_pairs(const TileProblem& problem, std::int64_t first, std::int64_t count, float* to) {
  ColumnPacker<PairIsa, PairIsa::kPairsForm, BF16>(problem, first, count, to).run();
}

template <class PairIsa>
void multiply_pairs(const TileProblem& problem, const Panels& panels, const Blocking& blocking,
                    const Scratch& scratch) {
  constexpr PanelForm kForm = PairIsa::kPairsForm;
  [[maybe_unused]] const typename PairIsa::Flushing flushing;
  problem.out_dtype == DType::kF32
      ? TileLoop<PairIsa, kForm, BF16, float>(problem, panels, blocking, scratch).run()
      : TileLoop<PairIsa, kForm, BF16, BF16>(problem, panels, blocking, scratch).run();
}

/// Of all products.
template <class Isa>
void pack_by(const TileProblem& problem, std::int64_t first, std::int64_t count, float* to) {
  if (problem.adds_pairs()) return pack_pairs<typename Isa::PairIsa>(problem, first, count, to);
  constexpr PanelForm kForm = PanelForm::kSteps;
  switch (problem.b_dtype) {
    case DType::kBF16:
      return ColumnPacker<Isa, kForm, BF16>(problem, first, count, to).run();
    case DType::kF16:
      return ColumnPacker<Isa, kForm, F16>(problem, first, count, to).run();
    case DType::kF8E4M3:
      return ColumnPacker<Isa, kForm, F8E4M3>(problem, first, count, to).run();
    case DType::kF8E5M2:
      return ColumnPacker<Isa, kForm, F8E5M2>(problem, first, count, to).run();
    default:
      return ColumnPacker<Isa, kForm, float>(problem, first, count, to).run();
  }
}

template <class Isa>
void multiply_by(const TileProblem& problem, const Panels& panels, const Blocking& blocking,
                 const Scratch& scratch) {
  if (problem.adds_pairs()) return multiply_pairs<typename Isa::PairIsa>(problem, panels, blocking, scratch);
  constexpr PanelForm kForm = PanelForm::kSteps;
  switch (problem.a_dtype) {
    case DType::kBF16:
      return TileLoop<Isa, kForm, BF16, float>(problem, panels, blocking, scratch).run();
    case DType::kF16:
      return problem.out_dtype == DType::kF32
                 ? TileLoop<Isa, kForm, F16, float>(problem, panels, blocking, scratch).run()
                 : TileLoop<Isa, kForm, F16, F16>(problem, panels, blocking, scratch).run();
    case DType::kF8E4M3:
      return TileLoop<Isa, kForm, F8E4M3, float>(problem, panels, blocking, scratch).run();
    case DType::kF8E5M2:
      return TileLoop<Isa, kForm, F8E5M2, float>(problem, panels, blocking, scratch).run();
    default:
      return TileLoop<Isa, kForm, float, float>(problem, panels, blocking, scratch).run();
  }
}

}  // namespace tandem::gemm::cpu
