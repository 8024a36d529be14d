#pragma once

// Copies of strided blocks in the form in which the tile reads them. Everything is a template over an Isa:
// see register_tile.hpp.

#include <cstdint>
#include <tandem/base/numeric.hpp>

namespace tandem::gemm::cpu {

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

/// A strided block of T as f32.
template <class Isa, class T>
struct Elements {
  const T* from;
  std::int64_t row_stride;
  std::int64_t col_stride;

  [[nodiscard]] bool has_rows() const { return col_stride == 1; }
  [[nodiscard]] bool has_columns() const { return row_stride == 1; }
  [[nodiscard]] const T* at(std::int64_t r, std::int64_t c) const {
    return from + r * row_stride + c * col_stride;
  }
  [[nodiscard]] float one(std::int64_t r, std::int64_t c) const { return Isa::load_one(at(r, c)); }
  [[nodiscard]] typename Isa::Vec along_row(std::int64_t r, std::int64_t c) const {
    return Isa::load(at(r, c));
  }
  [[nodiscard]] typename Isa::Vec along_column(std::int64_t r, std::int64_t c) const {
    return Isa::load(at(r, c));
  }
};

/// A strided block of bf16 as pairs of rows, or of columns.
template <class Isa, bool kOfRows>
struct Pairs {
  const BF16* from;
  std::int64_t row_stride;
  std::int64_t col_stride;

  [[nodiscard]] bool has_rows() const { return col_stride == 1; }
  [[nodiscard]] bool has_columns() const { return row_stride == 1; }
  /// The first of the pair; the other lies `to_other()` behind.
  [[nodiscard]] const BF16* at(std::int64_t r, std::int64_t c) const {
    return from + (kOfRows ? 2 : 1) * r * row_stride + (kOfRows ? 1 : 2) * c * col_stride;
  }
  [[nodiscard]] std::int64_t to_other() const { return kOfRows ? row_stride : col_stride; }
  [[nodiscard]] float one(std::int64_t r, std::int64_t c) const {
    return Isa::pair(at(r, c)->bits, at(r, c)[to_other()].bits);
  }
  [[nodiscard]] typename Isa::Vec along_row(std::int64_t r, std::int64_t c) const {
    return kOfRows ? Isa::zip(at(r, c), at(r, c) + to_other()) : Isa::load_pairs(at(r, c));
  }
  [[nodiscard]] typename Isa::Vec along_column(std::int64_t r, std::int64_t c) const {
    return kOfRows ? Isa::load_pairs(at(r, c)) : Isa::zip(at(r, c), at(r, c) + to_other());
  }
};
template <class Isa>
using PairsOfRows = Pairs<Isa, true>;
template <class Isa>
using PairsOfColumns = Pairs<Isa, false>;

/// Where a block goes: row-major.
struct Target {
  std::int64_t rows;
  std::int64_t cols;
  float* to;
  std::int64_t stride;
};

template <class Isa, class Source>
void copy_each(const Source& from, const Target& target, std::int64_t row_begin, std::int64_t row_end,
               std::int64_t col_begin, std::int64_t col_end) {
  for (std::int64_t r = row_begin; r < row_end; ++r) {
    for (std::int64_t c = col_begin; c < col_end; ++c) target.to[r * target.stride + c] = from.one(r, c);
  }
}

/// What is contiguous either way goes by vectors. Nothing beyond the block is read or written.
template <class Isa, class Source>
void copy_block(const Source& from, const Target& target) {
  constexpr std::int64_t kWidth = Isa::kWidth;
  const std::int64_t whole_rows = target.rows - target.rows % kWidth;
  const std::int64_t whole_cols = target.cols - target.cols % kWidth;
  if (from.has_rows()) {
    for (std::int64_t r = 0; r < target.rows; ++r) {
      for (std::int64_t c = 0; c < whole_cols; c += kWidth)
        Isa::store(target.to + r * target.stride + c, from.along_row(r, c));
    }
    copy_each<Isa>(from, target, 0, target.rows, whole_cols, target.cols);
  } else if (from.has_columns()) {
    // A few columns to their end: as many streams as a processor fetches ahead.
    for (std::int64_t c = 0; c < whole_cols; c += kWidth) {
      for (std::int64_t r = 0; r < whole_rows; r += kWidth) {
        typename Isa::Vec block[kWidth];
#pragma GCC unroll 16
        for (int i = 0; i < kWidth; ++i) block[i] = from.along_column(r, c + i);
        transpose<Isa>(block);
#pragma GCC unroll 16
        for (int i = 0; i < kWidth; ++i) Isa::store(target.to + (r + i) * target.stride + c, block[i]);
      }
    }
    copy_each<Isa>(from, target, 0, whole_rows, whole_cols, target.cols);
    copy_each<Isa>(from, target, whole_rows, target.rows, 0, target.cols);
  } else {
    copy_each<Isa>(from, target, 0, target.rows, 0, target.cols);
  }
}

}  // namespace tandem::gemm::cpu
