#pragma once

// The product kernel, written once over an `Isa`: a type that names a vector and its operations. Each
// instruction set has a file that defines its Isa and instantiates run_tile<Isa> with the compiler flags for
// it.
//
// Every function here is a template over Isa, and calls nothing inline from outside (no std::min, no
// conversions of numeric.hpp): the linker keeps one copy of an inline function, and it might be the one that
// needs AVX-512.
//
// Isa: Vec, kWidth (floats in a Vec), kTileVecs (vectors across a register tile), zero, broadcast, fma, add,
// load/store for float, BF16 and F16 (store of a narrow type rounds to nearest even), load_one/store_one,
// canonical (every NaN becomes the same NaN: which of two NaNs an instruction returns depends on how it was
// encoded), interleave_low/interleave_high (the lanes of the lower/upper halves, alternating).

#include <cstdint>
#include <tandem/base/numeric.hpp>
#include <type_traits>

#include "gemm/cpu/tile_problem.hpp"

namespace tandem::gemm::cpu {

inline constexpr int kTileRows = 6;
/// Most panels of a blocking: bounds the row buffer of the last step.
inline constexpr std::int64_t kMaxPanels = 8;

template <class Isa>
constexpr std::int64_t smaller(std::int64_t x, std::int64_t y) {
  return x < y ? x : y;
}

/// Turns kWidth x kWidth around its diagonal: each round interleaves a vector with the one half the block
/// further on.
template <class Isa>
void transpose(typename Isa::Vec* block) {
  constexpr int kWidth = Isa::kWidth;
  typename Isa::Vec other[kWidth];
  for (int round = 1; round < kWidth; round *= 2) {
#pragma GCC unroll 16
    for (int i = 0; i < kWidth / 2; ++i) {
      other[2 * i] = Isa::interleave_low(block[i], block[i + kWidth / 2]);
      other[2 * i + 1] = Isa::interleave_high(block[i], block[i + kWidth / 2]);
    }
#pragma GCC unroll 16
    for (int i = 0; i < kWidth; ++i) block[i] = other[i];
  }
}

/// A strided block of T and where its f32 copy goes.
template <class T>
struct WidenArgs {
  const T* from;
  std::int64_t row_stride;
  std::int64_t col_stride;
  std::int64_t rows;
  std::int64_t cols;
  float* to;
  std::int64_t to_stride;
};

template <class Isa, class T>
void widen_each(const WidenArgs<T>& args, std::int64_t row_begin, std::int64_t row_end,
                std::int64_t col_begin, std::int64_t col_end) {
  for (std::int64_t r = row_begin; r < row_end; ++r) {
    for (std::int64_t c = col_begin; c < col_end; ++c) {
      args.to[r * args.to_stride + c] = Isa::load_one(args.from + r * args.row_stride + c * args.col_stride);
    }
  }
}

/// The block as f32, row-major: what is contiguous either way goes by vectors.
template <class Isa, class T>
void widen_block(const WidenArgs<T>& args) {
  constexpr std::int64_t kWidth = Isa::kWidth;
  const std::int64_t whole_rows = args.rows - args.rows % kWidth;
  const std::int64_t whole_cols = args.cols - args.cols % kWidth;
  if (args.col_stride == 1) {
    for (std::int64_t r = 0; r < args.rows; ++r) {
      for (std::int64_t c = 0; c < whole_cols; c += kWidth) {
        Isa::store(args.to + r * args.to_stride + c, Isa::load(args.from + r * args.row_stride + c));
      }
    }
    widen_each<Isa>(args, 0, args.rows, whole_cols, args.cols);
  } else if (args.row_stride == 1) {
    for (std::int64_t r = 0; r < whole_rows; r += kWidth) {
      for (std::int64_t c = 0; c < whole_cols; c += kWidth) {
        typename Isa::Vec block[kWidth];
#pragma GCC unroll 16
        for (int i = 0; i < kWidth; ++i) block[i] = Isa::load(args.from + (c + i) * args.col_stride + r);
        transpose<Isa>(block);
#pragma GCC unroll 16
        for (int i = 0; i < kWidth; ++i) Isa::store(args.to + (r + i) * args.to_stride + c, block[i]);
      }
    }
    widen_each<Isa>(args, 0, whole_rows, whole_cols, args.cols);
    widen_each<Isa>(args, whole_rows, args.rows, 0, args.cols);
  } else {
    widen_each<Isa>(args, 0, args.rows, 0, args.cols);
  }
}

/// Operands of one register tile; `b` points into a panel.
struct TileArgs {
  std::int64_t depth;
  const float* a;
  std::int64_t a_stride;
  const float* b;
  float* sums;
  std::int64_t sums_stride;
};

/// sums += a * b for kRows rows and kVecs vectors of columns; k ascending, one fused multiply-add each.
template <class Isa, int kRows, int kVecs>
void tile(const TileArgs& args) {
  using Vec = typename Isa::Vec;
  Vec sums[kRows][kVecs];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVecs; ++v)
      sums[r][v] = Isa::load(args.sums + r * args.sums_stride + v * Isa::kWidth);
  }
  const float* a = args.a;
  const float* b = args.b;
  const std::int64_t a_stride = args.a_stride;
  for (std::int64_t p = 0; p < args.depth; ++p) {
    Vec columns[kVecs];
#pragma GCC unroll 8
    for (int v = 0; v < kVecs; ++v) columns[v] = Isa::load(b + v * Isa::kWidth);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const Vec row = Isa::broadcast(a[r * a_stride]);
#pragma GCC unroll 8
      for (int v = 0; v < kVecs; ++v) sums[r][v] = Isa::fma(row, columns[v], sums[r][v]);
    }
    ++a;
    b += kPanelColumns;
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVecs; ++v)
      Isa::store(args.sums + r * args.sums_stride + v * Isa::kWidth, sums[r][v]);
  }
}

template <class Isa, int kVecs>
void tile_of_rows(int rows, const TileArgs& args) {
  static_assert(kTileRows == 6);
  switch (rows) {
    case 1:
      return tile<Isa, 1, kVecs>(args);
    case 2:
      return tile<Isa, 2, kVecs>(args);
    case 3:
      return tile<Isa, 3, kVecs>(args);
    case 4:
      return tile<Isa, 4, kVecs>(args);
    case 5:
      return tile<Isa, 5, kVecs>(args);
    default:
      return tile<Isa, 6, kVecs>(args);
  }
}

/// One panel against one row tile: the columns in pieces of a register tile, the last one as narrow as it may
/// be.
template <class Isa>
void tile_row(int rows, std::int64_t cols, const TileArgs& args) {
  static_assert(Isa::kTileVecs == 4 || Isa::kTileVecs == 2);
  for (std::int64_t c = 0; c < cols; c += Isa::kTileVecs * Isa::kWidth) {
    TileArgs piece = args;
    piece.b += c;
    piece.sums += c;
    const std::int64_t vecs = (cols - c + Isa::kWidth - 1) / Isa::kWidth;
    if constexpr (Isa::kTileVecs == 4) {
      if (vecs >= 4) {
        tile_of_rows<Isa, 4>(rows, piece);
        continue;
      }
      if (vecs == 3) {
        tile_of_rows<Isa, 3>(rows, piece);
        continue;
      }
    }
    vecs >= 2 ? tile_of_rows<Isa, 2>(rows, piece) : tile_of_rows<Isa, 1>(rows, piece);
  }
}

/// The loops around the tile for one pair of types.
template <class Isa, class In, class Out>
class TileLoop {
 public:
  TileLoop(const TileProblem& problem, const Blocking& blocking, const Scratch& scratch)
      : problem_(problem),
        blocking_(blocking),
        scratch_(scratch),
        sums_stride_(blocking.panels * kPanelColumns) {}

  void run() {
    const std::int64_t cols_at_once = blocking_.panels * kPanelColumns;
    for (std::int64_t col = 0; col < problem_.n; col += cols_at_once) {
      const std::int64_t cols = smaller<Isa>(cols_at_once, problem_.n - col);
      pack_b(col, cols);
      widen_bias(col, cols);
      for (std::int64_t row = 0; row < problem_.m; row += blocking_.rows) {
        const std::int64_t rows = smaller<Isa>(blocking_.rows, problem_.m - row);
        start_sums(row, rows, col, cols);
        for (std::int64_t k = 0; k < problem_.k; k += blocking_.depth) {
          add_products(row, rows, k, smaller<Isa>(blocking_.depth, problem_.k - k), cols);
        }
        write_out(row, rows, col, cols);
      }
    }
  }

 private:
  // Panels [k][64]; columns beyond n are zero up to a whole vector, and not computed beyond that.
  void pack_b(std::int64_t col, std::int64_t cols) {
    const auto* b = static_cast<const In*>(problem_.b.data) + col * problem_.b.col_stride;
    for (std::int64_t c = 0; c < cols; c += kPanelColumns) {
      float* panel = scratch_.packed_b + c * problem_.k;
      const std::int64_t used = smaller<Isa>(kPanelColumns, cols - c);
      widen_block<Isa>(WidenArgs<In>{.from = b + c * problem_.b.col_stride,
                                     .row_stride = problem_.b.row_stride,
                                     .col_stride = problem_.b.col_stride,
                                     .rows = problem_.k,
                                     .cols = used,
                                     .to = panel,
                                     .to_stride = kPanelColumns});
      if (used % Isa::kWidth == 0) continue;
      const std::int64_t padded = used + Isa::kWidth - used % Isa::kWidth;
      for (std::int64_t p = 0; p < problem_.k; ++p) {
        for (std::int64_t i = used; i < padded; ++i) panel[p * kPanelColumns + i] = 0.0F;
      }
    }
  }

  void widen_bias(std::int64_t col, std::int64_t cols) {
    if (problem_.bias == nullptr) return;
    const auto* bias = static_cast<const Out*>(problem_.bias) + col * problem_.bias_stride;
    widen_block<Isa>(WidenArgs<Out>{.from = bias,
                                    .row_stride = 0,
                                    .col_stride = problem_.bias_stride,
                                    .rows = 1,
                                    .cols = cols,
                                    .to = scratch_.bias,
                                    .to_stride = 0});
  }

  void start_sums(std::int64_t row, std::int64_t rows, std::int64_t col, std::int64_t cols) {
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t c = 0; c < cols; c += Isa::kWidth)
        Isa::store(scratch_.sums + r * sums_stride_ + c, Isa::zero());
    }
    if (!problem_.accumulate) return;
    widen_block<Isa>(WidenArgs<Out>{.from = out_at(row, col),
                                    .row_stride = problem_.out.row_stride,
                                    .col_stride = problem_.out.col_stride,
                                    .rows = rows,
                                    .cols = cols,
                                    .to = scratch_.sums,
                                    .to_stride = sums_stride_});
  }

  void add_products(std::int64_t row, std::int64_t rows, std::int64_t k, std::int64_t depth,
                    std::int64_t cols) {
    const In* a =
        static_cast<const In*>(problem_.a.data) + row * problem_.a.row_stride + k * problem_.a.col_stride;
    const float* block = scratch_.widened_a;
    std::int64_t block_stride = scratch_.widened_a_stride;
    bool in_place = false;
    if constexpr (std::is_same_v<In, float>) {
      in_place = problem_.a.col_stride == 1;
      if (in_place) {
        block = a;
        block_stride = problem_.a.row_stride;
      }
    }
    if (!in_place) {
      widen_block<Isa>(WidenArgs<In>{.from = a,
                                     .row_stride = problem_.a.row_stride,
                                     .col_stride = problem_.a.col_stride,
                                     .rows = rows,
                                     .cols = depth,
                                     .to = scratch_.widened_a,
                                     .to_stride = block_stride});
    }
    for (std::int64_t c = 0; c < cols; c += kPanelColumns) {
      const float* panel = scratch_.packed_b + c * problem_.k + k * kPanelColumns;
      for (std::int64_t r = 0; r < rows; r += kTileRows) {
        tile_row<Isa>(static_cast<int>(smaller<Isa>(kTileRows, rows - r)),
                      smaller<Isa>(kPanelColumns, cols - c),
                      TileArgs{.depth = depth,
                               .a = block + r * block_stride,
                               .a_stride = block_stride,
                               .b = panel,
                               .sums = scratch_.sums + r * sums_stride_ + c,
                               .sums_stride = sums_stride_});
      }
    }
  }

  void write_out(std::int64_t row, std::int64_t rows, std::int64_t col, std::int64_t cols) {
    const std::int64_t stride = problem_.out.col_stride;
    for (std::int64_t r = 0; r < rows; ++r) {
      float* sums = scratch_.sums + r * sums_stride_;
      Out* out = out_at(row + r, col);
      if (stride == 1) {
        narrow_row(sums, cols, out);
        continue;
      }
      Out narrow[kMaxPanels * kPanelColumns];
      narrow_row(sums, cols, narrow);
      for (std::int64_t c = 0; c < cols; ++c) out[c * stride] = narrow[c];
    }
  }

  // Bias, one form of NaN, one rounding. The last vector is finished in `sums`, which has room for all of it.
  void narrow_row(float* sums, std::int64_t cols, Out* out) {
    for (std::int64_t c = 0; c < cols; c += Isa::kWidth) {
      typename Isa::Vec value = Isa::load(sums + c);
      if (problem_.bias != nullptr) value = Isa::add(value, Isa::load(scratch_.bias + c));
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
  Blocking blocking_;
  Scratch scratch_;
  std::int64_t sums_stride_;
};

/// The type pairs that gemm::problem_of lets through.
template <class Isa>
void run_tile(const TileProblem& problem, const Blocking& blocking, const Scratch& scratch) {
  const bool wide_out = problem.out_dtype == DType::kF32;
  switch (problem.in_dtype) {
    case DType::kBF16:
      return wide_out ? TileLoop<Isa, BF16, float>(problem, blocking, scratch).run()
                      : TileLoop<Isa, BF16, BF16>(problem, blocking, scratch).run();
    case DType::kF16:
      return wide_out ? TileLoop<Isa, F16, float>(problem, blocking, scratch).run()
                      : TileLoop<Isa, F16, F16>(problem, blocking, scratch).run();
    default:
      return TileLoop<Isa, float, float>(problem, blocking, scratch).run();
  }
}

}  // namespace tandem::gemm::cpu
