#pragma once

// The innermost loop, written once over an `Isa`: a type that names a vector and its operations. Each
// instruction set has a file that defines its Isa and instantiates tile_loop.hpp with the compiler flags for
// it.
//
// Every function here is a template over Isa, and calls nothing inline from outside (no std::min, no
// conversions of numeric.hpp): the linker keeps one copy of an inline function, and it might be the one that
// needs AVX-512.
//
// Isa: Vec, kWidth (floats in a Vec), kTileVecs (vectors across a register tile), zero, broadcast (of 32 bits
// at an address), fma, add, load/store for float and the narrower types (a store rounds to nearest even),
// load_one/store_one, canonical (every NaN becomes the same NaN: which of two NaNs an instruction returns
// depends on how it was encoded), interleave_low/interleave_high (the lanes of the lower/upper halves,
// alternating), Flushing (while it lives, fma and add take subnormals for zeros, and return zeros for them).
// PairIsa: the Isa of products that add in pairs, with kPairsForm; where that is kPairs, it has dot (two
// steps of k), pair, zip (pairs of two rows) and load_pairs.

#include <cstddef>
#include <cstdint>

#include "gemm/cpu/panels.hpp"

namespace tandem::gemm::cpu {

inline constexpr int kTileRows = 6;

/// Operands of one register tile; `b` points into a panel.
struct TileArgs {
  std::int64_t panel_rows;  ///< even, unless the form is kSteps or kPairs
  const std::byte* a;
  std::int64_t a_stride;  ///< bytes
  const float* b;
  float* sums;  ///< [rows][kPanelColumns]
  bool begins;  ///< the sums begin with 0, not with what they are
};

/// sums += a * b for kRows rows and kVecs vectors of columns.
template <class Isa, PanelForm kForm, int kRows, int kVecs>
void tile(const TileArgs& args) {
  using Vec = typename Isa::Vec;
  constexpr int kRowsAtOnce = kForm == PanelForm::kTwoSteps ? 2 : 1;
  Vec sums[kRows][kVecs];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVecs; ++v) {
      sums[r][v] = args.begins ? Isa::zero() : Isa::load(args.sums + r * kPanelColumns + v * Isa::kWidth);
    }
  }
  const std::byte* a = args.a;
  const float* b = args.b;
  const std::int64_t a_stride = args.a_stride;
  for (std::int64_t p = 0; p < args.panel_rows; p += kRowsAtOnce) {
#pragma GCC unroll 2
    for (int step = kRowsAtOnce - 1; step >= 0; --step) {
      Vec columns[kVecs];
#pragma GCC unroll 8
      for (int v = 0; v < kVecs; ++v) columns[v] = Isa::load(b + step * kPanelColumns + v * Isa::kWidth);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        const Vec row = Isa::broadcast(a + r * a_stride + step * 4);
#pragma GCC unroll 8
        for (int v = 0; v < kVecs; ++v) {
          if constexpr (kForm == PanelForm::kPairs) {
            sums[r][v] = Isa::dot(row, columns[v], sums[r][v]);
          } else {
            sums[r][v] = Isa::fma(row, columns[v], sums[r][v]);
          }
        }
      }
    }
    a += kRowsAtOnce * 4;
    b += kRowsAtOnce * kPanelColumns;
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVecs; ++v) Isa::store(args.sums + r * kPanelColumns + v * Isa::kWidth, sums[r][v]);
  }
}

template <class Isa, PanelForm kForm, int kVecs>
void tile_of_rows(int rows, const TileArgs& args) {
  static_assert(kTileRows == 6);
  switch (rows) {
    case 1:
      return tile<Isa, kForm, 1, kVecs>(args);
    case 2:
      return tile<Isa, kForm, 2, kVecs>(args);
    case 3:
      return tile<Isa, kForm, 3, kVecs>(args);
    case 4:
      return tile<Isa, kForm, 4, kVecs>(args);
    case 5:
      return tile<Isa, kForm, 5, kVecs>(args);
    default:
      return tile<Isa, kForm, 6, kVecs>(args);
  }
}

/// One panel against one row tile: the columns in pieces of a register tile, the last one as narrow as it may
/// be.
template <class Isa, PanelForm kForm>
void tile_row(int rows, std::int64_t cols, const TileArgs& args) {
  static_assert(Isa::kTileVecs == 4 || Isa::kTileVecs == 2);
  for (std::int64_t c = 0; c < cols; c += Isa::kTileVecs * Isa::kWidth) {
    TileArgs piece = args;
    piece.b += c;
    piece.sums += c;
    const std::int64_t vecs = (cols - c + Isa::kWidth - 1) / Isa::kWidth;
    if constexpr (Isa::kTileVecs == 4) {
      if (vecs >= 4) {
        tile_of_rows<Isa, kForm, 4>(rows, piece);
        continue;
      }
      if (vecs == 3) {
        tile_of_rows<Isa, kForm, 3>(rows, piece);
        continue;
      }
    }
    vecs >= 2 ? tile_of_rows<Isa, kForm, 2>(rows, piece) : tile_of_rows<Isa, kForm, 1>(rows, piece);
  }
}

}  // namespace tandem::gemm::cpu
