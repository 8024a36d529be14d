#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <tandem/base/numeric.hpp>
#include <type_traits>

#include "gemm/cpu/four_bit_rows.hpp"
#include "gemm/packed_weight.hpp"

// Compiled once for each instruction set: what is here must not be inline in the sense of the language, so
// each function is a template over the Isa.

namespace tandem::gemm::cpu {

/// The largest float below 1/2: adding it away from zero, then cutting off, rounds halves away from zero.
inline constexpr float kBelowHalf = 0x1.fffffep-2F;

/// Rows of a block that are multiplied together.
struct RowTile {
  std::int64_t first = 0;
  std::int64_t count = 0;
};
/// The tile of a row: the rows are cut into as few as can be, which differ by one row at most.
template <class Isa>
RowTile tile_of(std::int64_t num_rows, std::int64_t row) {
  const std::int64_t tiles = (num_rows + Isa::kTileRows - 1) / Isa::kTileRows;
  const std::int64_t small = num_rows / tiles;
  const std::int64_t border = num_rows % tiles * (small + 1);  // where the larger ones end
  if (row < border) return {row / (small + 1) * (small + 1), small + 1};
  return {border + (row - border) / small * small, small};
}

/// Rounds a row of a block to 8 bits. `values` [k].
template <class Isa>
void quantize_row(const float* values, std::int64_t row, const FourBitRows& rows) {
  constexpr std::int64_t kWidth = Isa::kWidth;
  using Floats = typename Isa::Floats;
  Floats low = Isa::zero();
  Floats high = Isa::zero();
  Floats poison = Isa::zero();  // NaN where a value is not finite
  for (std::int64_t k = 0; k < rows.k; k += kWidth) {
    const Floats x = Isa::load(values + k);
    low = Isa::smaller(low, x);
    high = Isa::larger(high, x);
    poison = Isa::fma(x, Isa::zero(), poison);
  }
  float lo = 0;
  float hi = 0;
  float all = 0;
  float lanes[kWidth];
  Isa::store(lanes, low);
  for (const float lane : lanes) lo = lane < lo ? lane : lo;
  Isa::store(lanes, high);
  for (const float lane : lanes) hi = lane > hi ? lane : hi;
  Isa::store(lanes, poison);
  for (const float lane : lanes) all += lane;
  const RowScale scale =
      all == 0 ? row_scale_of(lo, hi) : RowScale{.scale = std::numeric_limits<float>::quiet_NaN()};
  rows.scales[row] = scale.scale;
  rows.zeros[row] = scale.zero;
  const Floats factor = Isa::broadcast(all == 0 ? scale.scale : 0.0F);
  const typename Isa::Ints zero = Isa::broadcast(scale.zero);
  const RowTile tile = tile_of<Isa>(rows.count, row);
  std::int8_t* to = rows.bytes + tile.first * rows.k + 4 * (row - tile.first);
  for (std::int64_t group = 0; group < rows.k; group += rows.group) {
    typename Isa::Ints sums = Isa::no_sum();
    for (std::int64_t k = group; k < group + rows.group; k += 16) {
      std::int8_t bytes[16];
      for (std::int64_t i = 0; i < 16; i += kWidth) {
        const auto q = Isa::rounded(Isa::load(values + k + i), factor, zero);
        sums = Isa::plus(sums, q);
        Isa::store_bytes(bytes + i, q);
      }
      for (std::int64_t q = 0; q < 4; ++q, to += 4 * tile.count) std::memcpy(to, bytes + 4 * q, 4);
    }
    const std::int32_t sum = Isa::total(sums);
    rows.sums[group / rows.group * rows.count + row] = sum;
    rows.pairs[group / rows.group * rows.count + row] = static_cast<std::int32_t>(
        (static_cast<std::uint32_t>(sum) << 16) | (static_cast<std::uint32_t>(-scale.zero) & 0xffffU));
  }
}

/// Some rows of a block against some columns of a panel.
struct FourBitTile {
  const FourBitRows* rows = nullptr;
  std::int64_t first_row = 0;
  const PackedWeight* weight = nullptr;
  const std::byte* panel = nullptr;
  std::int64_t first_column = 0;  ///< of the panel
  float* sums = nullptr;          ///< [rows][kPanel]
};

/// What a sum over a group begins with: zero * sum (w - 8) and 8 * sum q, both negative.
template <class Isa, int kRows, int kVecs>
[[gnu::always_inline]] inline void begin_sums(const FourBitTile& tile, std::int64_t group,
                                              const std::byte* sums,
                                              typename Isa::Ints (&acc)[kRows][kVecs]) {
  const FourBitRows& rows = *tile.rows;
  const std::int64_t at = group * rows.count + tile.first_row;
  if (tile.weight->has_small_groups()) {
    typename Isa::Ints pairs[kVecs];
#pragma GCC unroll 8
    for (int v = 0; v < kVecs; ++v)
      pairs[v] = Isa::with_minus_8(sums + (tile.first_column + v * Isa::kWidth) * 2);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const auto pair = Isa::spread(rows.pairs + at + r);
#pragma GCC unroll 8
      for (int v = 0; v < kVecs; ++v) acc[r][v] = Isa::dot_of_pairs(pairs[v], pair);
    }
    return;
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    const std::int32_t eight = -8 * rows.sums[at + r];
    const std::int32_t zero = -rows.zeros[tile.first_row + r];
#pragma GCC unroll 8
    for (int v = 0; v < kVecs; ++v)
      acc[r][v] = Isa::times_plus(sums + (tile.first_column + v * Isa::kWidth) * 4, zero, eight);
  }
}

/// Few rows have two sums of each element, so that no product waits for the one before it: one of the low
/// halves and one of the high ones.
template <int kRows, int kVecs>
inline constexpr bool kIsSplit = kRows* kVecs < 8;

/// Adds the products of eight k: the low halves of the nibbles by a row's first four bytes, the high ones by
/// its next. Integer sums are exact, so their order is free.
template <class Isa, int kRows, int kVecs>
[[gnu::always_inline]] inline void add_step(const std::byte* nibbles, const std::int8_t* a,
                                            std::int64_t stride, typename Isa::Ints (&sums)[kRows][kVecs],
                                            typename Isa::Ints (&more)[kRows][kVecs]) {
  using Ints = typename Isa::Ints;
  Ints low[kVecs];
  Ints high[kVecs];
#pragma GCC unroll 8
  for (int v = 0; v < kVecs; ++v) {
    const std::byte* const from = nibbles + v * Isa::kWidth * 4;
    const Ints both = kIsSplit<kRows, kVecs> ? Isa::load_bytes_once(from) : Isa::load_bytes(from);
    low[v] = Isa::low_halves(both);
    high[v] = kIsSplit<kRows, kVecs> ? Isa::apart_high_halves(both) : Isa::high_halves(both);
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    const Ints x = Isa::spread(a + 4 * r);
#pragma GCC unroll 8
    for (int v = 0; v < kVecs; ++v) sums[r][v] = Isa::dot(sums[r][v], low[v], x);
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    const Ints x = Isa::spread(a + stride + 4 * r);
#pragma GCC unroll 8
    for (int v = 0; v < kVecs; ++v) {
      Ints& sum = kIsSplit<kRows, kVecs> ? more[r][v] : sums[r][v];
      sum = Isa::dot(sum, high[v], x);
    }
  }
}

template <class Value, int kRows, int kVecs>
[[gnu::always_inline]] inline void fill(Value (&values)[kRows][kVecs], Value value) {
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVecs; ++v) values[r][v] = value;
  }
}

/// The sums over all groups: [kRows][kVecs vectors] of tile.sums.
template <class Isa, int kRows, int kVecs>
void multiply(const FourBitTile& tile) {
  using Ints = typename Isa::Ints;
  const PackedWeight& weight = *tile.weight;
  constexpr std::int64_t kStride = 4 * kRows;
  const std::int8_t* a = tile.rows->bytes + tile.first_row * tile.rows->k;
  const std::byte* group = tile.panel;
  typename Isa::Floats total[kRows][kVecs];
  fill(total, Isa::zero());
  for (std::int64_t j = 0; j < weight.num_groups(); ++j, group += weight.group_bytes()) {
    const std::byte* const scales = group + weight.nibble_bytes();
    Ints sums[kRows][kVecs];
    Ints more[kRows][kVecs];
    begin_sums<Isa, kRows, kVecs>(tile, j, scales + PackedWeight::kPanel * 4, sums);
    fill(more, Isa::no_sum());
    const std::byte* nibbles = group + tile.first_column * 4;
    for (std::int64_t step = 0; step < weight.group() / 8; ++step) {
      add_step<Isa, kRows, kVecs>(nibbles, a, kStride, sums, more);
      a += 2 * kStride;
      nibbles += PackedWeight::kStepBytes;
    }
#pragma GCC unroll 8
    for (int v = 0; v < kVecs; ++v) {
      const auto* const at = reinterpret_cast<const float*>(scales) + tile.first_column + v * Isa::kWidth;
      const typename Isa::Floats scale = Isa::load(at);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        const Ints exact = kIsSplit<kRows, kVecs> ? Isa::joined(sums[r][v], more[r][v]) : sums[r][v];
        total[r][v] = Isa::fma(Isa::to_floats(exact), scale, total[r][v]);
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVecs; ++v)
      Isa::store(tile.sums + r * PackedWeight::kPanel + v * Isa::kWidth, total[r][v]);
  }
}

template <class Isa, int kVecs>
void multiply_rows(int rows, const FourBitTile& tile) {
  static_assert(Isa::kTileRows <= 6);
  if constexpr (Isa::kTileRows >= 6) {
    if (rows == 6) return multiply<Isa, 6, kVecs>(tile);
    if (rows == 5) return multiply<Isa, 5, kVecs>(tile);
  }
  if constexpr (Isa::kTileRows >= 4) {
    if (rows == 4) return multiply<Isa, 4, kVecs>(tile);
    if (rows == 3) return multiply<Isa, 3, kVecs>(tile);
    if (rows == 2) return multiply<Isa, 2, kVecs>(tile);
  }
  multiply<Isa, 1, kVecs>(tile);
}

/// All rows of a block against a panel: sums [rows.count][kPanel].
template <class Isa>
void multiply_panel(const FourBitRows& rows, const PackedWeight& weight, std::int64_t panel, float* sums) {
  RowTile tile;
  for (; tile.first < rows.count; tile.first += tile.count) {
    tile = tile_of<Isa>(rows.count, tile.first);
    for (std::int64_t column = 0; column < PackedWeight::kPanel; column += Isa::kTileVecs * Isa::kWidth) {
      multiply_rows<Isa, Isa::kTileVecs>(static_cast<int>(tile.count),
                                         {.rows = &rows,
                                          .first_row = tile.first,
                                          .weight = &weight,
                                          .panel = weight.panel(panel),
                                          .first_column = column,
                                          .sums = sums + tile.first * PackedWeight::kPanel + column});
    }
  }
}

/// A row of a panel: / scale, + bias, clamped, one form of NaN, rounded. `bias` may be null. T is f32 or
/// bf16.
template <class Isa, class T>
void finish_row(const float* sums, float scale, const float* bias, T* to) {
  const float largest = std::is_same_v<T, float> ? std::numeric_limits<float>::max() : 0x1.fep127F;
  const typename Isa::Floats by = Isa::broadcast(scale);
  for (std::int64_t c = 0; c < PackedWeight::kPanel; c += Isa::kWidth) {
    typename Isa::Floats y = Isa::divided(Isa::load(sums + c), by);
    if (bias != nullptr) y = Isa::add(y, Isa::load(bias + c));
    const auto clamped = Isa::smaller(Isa::larger(y, Isa::broadcast(-largest)), Isa::broadcast(largest));
    Isa::store(to + c, Isa::or_nan_of(y, clamped));
  }
}

template <class Isa>
constexpr FourBitKernels kernels_of() {
  return {quantize_row<Isa>, multiply_panel<Isa>, finish_row<Isa, float>, finish_row<Isa, BF16>};
}

}  // namespace tandem::gemm::cpu
