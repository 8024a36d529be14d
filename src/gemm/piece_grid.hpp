#pragma once

#include <cstdint>
#include <tandem/base/divisor.hpp>

namespace tandem::gemm {

/// How rows are cut that a kernel sends to its peers while it multiplies: into pieces that one warp copies at
/// a time, each with a flag of its own at the receiver. A tile's step in k, 128 rows of 128 bytes, is eight
/// pieces, whose flags lie side by side. Runs on hosts and, compiled with
/// --expt-relaxed-constexpr, in kernels.
struct PieceGrid {
  static constexpr int kRows = 16;
  static constexpr int kStepBytes = 128;  ///< of a row
  static constexpr int kBytes = kRows * kStepBytes;
  static constexpr int kTileRows = 128;
  static constexpr int kOfStep = kTileRows / kRows;

  constexpr PieceGrid() = default;
  /// Of `tiles` rows of tiles of the sender's shard, and `k_steps` of kStepBytes; 1 or more of both.
  constexpr PieceGrid(int tiles, int k_steps) : tiles_(tiles), k_steps_(k_steps), of_step_(tiles * kOfStep) {}

  [[nodiscard]] constexpr int k_steps() const { return k_steps_; }

  struct Piece {
    int tile = 0;
    int k_step = 0;
    int part = 0;  ///< of the tile's rows
    friend constexpr bool operator==(const Piece&, const Piece&) = default;
  };
  [[nodiscard]] constexpr int size() const { return tiles_ * k_steps_ * kOfStep; }
  /// In the order in which they are sent: what every receiver needs first first, so step by step in k.
  [[nodiscard]] constexpr Piece piece(int index) const {
    const int k_step = index / of_step_;
    const auto in_step = static_cast<unsigned>(index - k_step * of_step_.value());
    return {.tile = static_cast<int>(in_step / kOfStep),
            .k_step = k_step,
            .part = static_cast<int>(in_step % kOfStep)};
  }
  /// Where a piece's flag lies among those of all rows; `tile` counts through all rows.
  [[nodiscard]] static constexpr std::int64_t flag_index(int tile, int k_steps, int k_step, int part) {
    return (std::int64_t{tile} * k_steps + k_step) * kOfStep + part;
  }

  /// Whether rows and columns are whole pieces and tiles.
  [[nodiscard]] static constexpr bool accepts(std::int64_t shard_rows, std::int64_t row_bytes) {
    constexpr std::int64_t kMost = std::int64_t{1} << 26;  // flags, and any index into them, in 31 bits
    return shard_rows > 0 && shard_rows % kTileRows == 0 && row_bytes > 0 && row_bytes % kStepBytes == 0 &&
           shard_rows / kRows <= kMost / (row_bytes / kStepBytes);
  }

 private:
  int tiles_ = 0;
  int k_steps_ = 0;
  Divisor of_step_;  // pieces of all tiles
};

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

}  // namespace tandem::gemm
