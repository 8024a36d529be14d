#pragma once

#include <algorithm>
#include <cstdint>
#include <tandem/base/divisor.hpp>

namespace tandem::gemm {

/// Where the flags of pieces lie at a receiver: those of a row of flags one step of k after the other, those
/// of a step side by side.
struct PieceFlags {
  int k_steps = 0;
  int of_step = 8;  ///< words of a step: a power of two, from 4 to kMostOfStep
  int parts = 8;    ///< those of them that belong to pieces; nobody writes the others

  /// As many as a warp looks at together, four by each lane.
  static constexpr int kMostOfStep = 128;

  [[nodiscard]] constexpr std::int64_t index(int row, int k_step, int part) const {
    return (std::int64_t{row} * k_steps + k_step) * of_step + part;
  }
};

struct PieceCut;

/// How a shard is cut that a kernel sends to its peers while it multiplies: into pieces that one warp copies
/// at a time, each with a flag of its own at the receiver. A piece is 16 rows of 128 bytes, the last ones of
/// a shard and of k perhaps less. Runs on hosts and, compiled with --expt-relaxed-constexpr, in kernels.
struct PieceGrid {
  static constexpr int kRows = 16;
  static constexpr int kStepBytes = 128;  ///< of a row
  static constexpr int kBytes = kRows * kStepBytes;
  static constexpr int kTileRows = 128;
  static constexpr int kOfTile = kTileRows / kRows;

  constexpr PieceGrid() = default;
  /// Of a shard that has `rows` rows, up to those of a whole one.
  constexpr PieceGrid(const PieceCut& cut, int rows);

  [[nodiscard]] constexpr int k_steps() const { return flags_.k_steps; }
  [[nodiscard]] constexpr int rows() const { return rows_; }
  [[nodiscard]] constexpr int row_bytes() const { return row_bytes_; }

  struct Piece {
    int row = 0;  ///< its first one, of the shard; none is there of a piece behind the shard's end
    int k_step = 0;
    friend constexpr bool operator==(const Piece&, const Piece&) = default;
  };
  [[nodiscard]] constexpr int size() const { return of_step_.value() * flags_.k_steps; }
  /// In the order in which they are sent: what every receiver needs first first, so step by step in k.
  [[nodiscard]] constexpr Piece piece(int index) const {
    const int k_step = index / of_step_;
    return {.row = (index - k_step * of_step_.value()) * kRows, .k_step = k_step};
  }
  /// Where a piece's flag lies behind the first one of the shard.
  [[nodiscard]] constexpr std::int64_t flag_index(const Piece& piece) const {
    const auto part = static_cast<unsigned>(piece.row) / kRows;
    const int tile = shares_tiles_ ? 0 : static_cast<int>(part / kOfTile);
    return flags_.index(tile, piece.k_step, static_cast<int>(part) - tile * kOfTile);
  }

 private:
  int rows_ = 0;
  int row_bytes_ = 0;
  bool shares_tiles_ = false;
  PieceFlags flags_;
  Divisor of_step_;  // pieces of a whole shard
};

/// How the rows of all ranks are cut into pieces: what sender and receiver have to find alike. Shards of
/// whole tiles have a row of flags for each tile, whose eight pieces a step. Others come together: there is
/// one row of flags, and a step has the pieces of one shard behind those of the other. Each rank flags as
/// many pieces as a whole shard has, also those that lie behind its own rows: so every rank hears of every
/// other one.
struct PieceCut {
  std::int64_t rows = 0;        ///< of all ranks
  std::int64_t shard_rows = 0;  ///< of every shard but perhaps the last ones
  int shards = 1;
  std::int64_t row_bytes = 0;

  /// Most rows of shards that come together.
  static constexpr std::int64_t kMostShared = 511;

  /// Whether a tile may have rows of several shards.
  [[nodiscard]] constexpr bool shares_tiles() const {
    return shard_rows % PieceGrid::kTileRows != 0 || rows != shard_rows * shards;
  }
  [[nodiscard]] constexpr int k_steps() const {
    return static_cast<int>((row_bytes + PieceGrid::kStepBytes - 1) / PieceGrid::kStepBytes);
  }
  /// Pieces of a shard's step.
  [[nodiscard]] constexpr int parts_of_shard() const {
    return static_cast<int>((shard_rows + PieceGrid::kRows - 1) / PieceGrid::kRows);
  }
  [[nodiscard]] constexpr PieceFlags flags() const {
    if (!shares_tiles()) return {.k_steps = k_steps()};
    PieceFlags flags{.k_steps = k_steps(), .of_step = 4, .parts = shards * parts_of_shard()};
    while (flags.of_step < flags.parts) flags.of_step *= 2;
    return flags;
  }
  /// Of all shards.
  [[nodiscard]] constexpr std::int64_t num_flags() const {
    const std::int64_t flag_rows = shares_tiles() ? 1 : rows / PieceGrid::kTileRows;
    return flags().index(static_cast<int>(flag_rows), 0, 0);
  }
  [[nodiscard]] constexpr std::int64_t first_flag(int shard) const {
    if (shares_tiles()) return std::int64_t{shard} * parts_of_shard();
    return flags().index(static_cast<int>(shard * shard_rows / PieceGrid::kTileRows), 0, 0);
  }

  [[nodiscard]] constexpr bool is_possible() const {
    constexpr std::int64_t kMost = std::int64_t{1} << 26;  // flags, and any index into them, in 31 bits
    constexpr std::int64_t kMostRowBytes = std::int64_t{1} << 30;
    if (rows < 1 || shards < 1 || shard_rows < 1 || row_bytes < 1 || row_bytes > kMostRowBytes ||
        row_bytes % 16 != 0 || rows > shard_rows * shards) {
      return false;
    }
    if (!shares_tiles()) return rows / PieceGrid::kRows <= kMost / k_steps();
    return rows <= kMostShared && flags().of_step <= PieceFlags::kMostOfStep &&
           flags().of_step <= kMost / k_steps();
  }
};

constexpr PieceGrid::PieceGrid(const PieceCut& cut, int rows)
    : rows_(rows),
      row_bytes_(static_cast<int>(cut.row_bytes)),
      shares_tiles_(cut.shares_tiles()),
      flags_(cut.flags()),
      of_step_(cut.parts_of_shard()) {}

/// In which order warps send pieces: in rounds of a few that go to the same peers, each warp every so many
/// rounds. All pieces go to the first `at_once` peers before any goes to as many others.
struct PieceRounds {
  int pieces = 0;
  int peers = 0;
  int at_once = 1;   ///< peers that get a round
  int together = 1;  ///< pieces of a round
  int of_turn = 0;   ///< rounds until all pieces have gone to the same peers

  constexpr PieceRounds() = default;
  constexpr PieceRounds(int num_pieces, int num_peers, int peers_at_once, int pieces_together)
      : pieces(num_pieces),
        peers(num_peers),
        at_once(peers_at_once),
        together(pieces_together),
        of_turn((num_pieces + pieces_together - 1) / pieces_together) {}
};

/// One of them.
class PieceRound {
 public:
  /// Number `number` of all.
  constexpr PieceRound(const PieceRounds& rounds, int number) : in_turn_(number) { settle(rounds); }
  constexpr void advance(const PieceRounds& rounds, int by) {
    in_turn_ += by;
    settle(rounds);
  }

  [[nodiscard]] constexpr bool is_over(const PieceRounds& rounds) const { return peer_ >= rounds.peers; }
  /// Pieces [first, end), none once all is over.
  [[nodiscard]] constexpr int first(const PieceRounds& rounds) const {
    return is_over(rounds) ? rounds.pieces : in_turn_ * rounds.together;
  }
  [[nodiscard]] constexpr int end(const PieceRounds& rounds) const {
    const int behind = first(rounds) + rounds.together;
    return behind < rounds.pieces ? behind : rounds.pieces;
  }
  /// Peers [peer, end_peer).
  [[nodiscard]] constexpr int peer() const { return peer_; }
  [[nodiscard]] constexpr int end_peer(const PieceRounds& rounds) const {
    const int behind = peer_ + rounds.at_once;
    return behind < rounds.peers ? behind : rounds.peers;
  }

 private:
  constexpr void settle(const PieceRounds& rounds) {
    for (; in_turn_ >= rounds.of_turn && peer_ < rounds.peers; in_turn_ -= rounds.of_turn)
      peer_ += rounds.at_once;
  }

  int in_turn_;
  int peer_ = 0;
};

/// To how many of `peers` pieces go at one time: to those that multiply the shard in their first wave of
/// tiles; all where there is but one. (Later waves have room for one peer more, whose own shard is done.)
/// `wave`: clusters of tiles that run at one time; `clusters`: of all `shards` together.
[[nodiscard]] constexpr int peers_at_once(int peers, int wave, std::int64_t clusters, int shards) {
  if (clusters <= wave) return peers;
  const std::int64_t of_shard = std::max<std::int64_t>(clusters / shards, 1);
  const std::int64_t of_wave = (wave + of_shard / 2) / of_shard;
  return static_cast<int>(std::clamp<std::int64_t>(of_wave - 1, 1, peers));  // one of them is the own
}

}  // namespace tandem::gemm
