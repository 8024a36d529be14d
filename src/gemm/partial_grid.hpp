#pragma once

#include <cstdint>

namespace tandem::gemm {

/// How a rank's part of a product is cut that goes to its owner: into blocks of 64 rows and 32 columns, what
/// a warp group's 128 threads have of a tile, each with a word of its own at the owner. A block is cut alike
/// by every rank, whatever tiles its kernel has. Runs on hosts and, compiled with --expt-relaxed-constexpr,
/// in kernels.
///
/// Each owner's rows are cut from its own first one on. Few rows share tiles: all rows are cut together, a
/// block may have rows of several owners, and each owner gets those of its own.
struct PartialGrid {
  /// Up to so many rows share tiles: one wave of tiles then, that loads b once.
  static constexpr std::int64_t kMostShared = 512;

  static constexpr int kRows = 64;
  static constexpr int kColumns = 32;
  static constexpr int kElementBytes = 2;
  static constexpr int kBytes = kRows * kColumns * kElementBytes;

  int owners = 1;   ///< ranks, each with a shard of the rows, or with all of them
  int strips = 0;   ///< blocks of an owner's shard, or of all rows, one below the other
  int columns = 0;  ///< and beside each other
  bool shares_tiles = false;

  constexpr PartialGrid() = default;
  /// `rows`: of an owner's shard, or all that share tiles.
  constexpr PartialGrid(int num_owners, std::int64_t rows, std::int64_t n, bool shares)
      : owners(num_owners),
        strips(static_cast<int>((rows + kRows - 1) / kRows)),
        columns(static_cast<int>((n + kColumns - 1) / kColumns)),
        shares_tiles(shares) {}

  /// Of one sender's blocks for one owner.
  [[nodiscard]] constexpr std::int64_t of_sender() const { return std::int64_t{strips} * columns; }
  /// Of all that come to an owner; it sends none to itself.
  [[nodiscard]] constexpr std::int64_t size() const { return (owners - 1) * of_sender(); }
  /// Where a block lies at its owner, and its word. Those of a strip lie side by side.
  [[nodiscard]] constexpr std::int64_t index(int owner, int sender, int strip, int column) const {
    const int place = sender < owner ? sender : sender - 1;
    return (std::int64_t{place} * strips + strip) * columns + column;
  }

  /// Whether blocks can be counted.
  [[nodiscard]] static constexpr bool accepts(int owners, std::int64_t rows, std::int64_t n) {
    constexpr std::int64_t kMost = std::int64_t{1} << 26;
    return owners > 1 && rows > 0 && n > 0 && rows <= kMost && n <= kMost &&
           (rows / kRows + 1) <= kMost / ((n / kColumns + 1) * owners);
  }
};

}  // namespace tandem::gemm
