// How rows are cut that products send: what sender and receiver have to find alike.
#include "gemm/piece_grid.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <tandem/base/shard.hpp>
#include <utility>
#include <vector>

namespace tandem::gemm {
namespace {

/// Shards of whole tiles, of two ranks.
PieceCut whole(std::int64_t tiles, std::int64_t k_steps) {
  const std::int64_t rows = tiles * PieceGrid::kTileRows;
  return {.rows = 2 * rows, .shard_rows = rows, .shards = 2, .row_bytes = k_steps * PieceGrid::kStepBytes};
}
/// Of any rows, by the shard rule.
PieceCut cut_of(std::int64_t rows, int shards, std::int64_t row_bytes) {
  return {.rows = rows, .shard_rows = shard_stride(rows, shards), .shards = shards, .row_bytes = row_bytes};
}

TEST(PieceGrid, HoldsEveryPieceOnceStepByStepInK) {
  for (const int tiles : {1, 2, 5}) {
    for (const int k_steps : {1, 3, 128}) {
      const PieceCut cut = whole(tiles, k_steps);
      ASSERT_TRUE(cut.is_possible());
      EXPECT_FALSE(cut.shares_tiles());
      const PieceGrid grid(cut, static_cast<int>(cut.shard_rows));
      std::set<std::pair<int, int>> seen;
      std::set<std::int64_t> flags;
      int last_step = 0;
      for (int i = 0; i < grid.size(); ++i) {
        const PieceGrid::Piece piece = grid.piece(i);
        ASSERT_GE(piece.k_step, last_step);
        last_step = piece.k_step;
        ASSERT_EQ(piece.row % PieceGrid::kRows, 0);
        ASSERT_LT(piece.row, cut.shard_rows);
        ASSERT_LT(piece.k_step, k_steps);
        ASSERT_TRUE(seen.emplace(piece.row, piece.k_step).second);
        flags.insert(grid.flag_index(piece));
      }
      EXPECT_EQ(flags.size(), static_cast<std::size_t>(grid.size())) << "a flag each";
      EXPECT_EQ(*flags.rbegin(), grid.size() - 1) << "and no gaps";
      EXPECT_EQ(cut.first_flag(1), grid.size());
      EXPECT_EQ(cut.num_flags(), 2 * grid.size());
      EXPECT_EQ(grid.size() * PieceGrid::kBytes,
                tiles * PieceGrid::kTileRows * k_steps * PieceGrid::kStepBytes);
    }
  }
}

// A receiver looks at the eight flags of a tile's step with one load of two lanes.
TEST(PieceGrid, FlagsOfAStepLieSideBySide) {
  const PieceGrid grid(whole(2, 4), 256);
  EXPECT_EQ(grid.flag_index({.row = 112, .k_step = 0}), 7);
  EXPECT_EQ(grid.flag_index({.row = 0, .k_step = 1}), 8);
  EXPECT_EQ(grid.flag_index({.row = 128, .k_step = 0}), 32);
}

// Of few rows: each rank's pieces of a step lie beside those of the others, in as many words as a warp looks
// at, and each flags as many as a whole shard has, whatever it has itself.
TEST(PieceGrid, ShardsThatShareTilesHaveTheirFlagsTogether) {
  for (const int shards : {2, 3, 4, 8, 32}) {
    for (std::int64_t rows = 1; rows <= PieceCut::kMostShared; rows += rows < 40 ? 1 : 13) {
      const std::int64_t row_bytes = rows % 2 == 0 ? 3 * 128 : 2 * 128 + 16;
      const PieceCut cut = cut_of(rows, shards, row_bytes);
      SCOPED_TRACE(testing::Message() << rows << " rows of " << shards);
      ASSERT_TRUE(cut.is_possible());
      if (!cut.shares_tiles()) continue;
      EXPECT_EQ(cut.k_steps(), 3);
      std::set<std::int64_t> flags;
      for (int shard = 0; shard < shards; ++shard) {
        const Shard own = shard_of(rows, shards, shard);
        const PieceGrid grid(cut, static_cast<int>(own.size));
        ASSERT_GT(grid.size(), 0) << "also of a rank without rows";
        std::int64_t covered = 0;
        for (int i = 0; i < grid.size(); ++i) {
          const PieceGrid::Piece piece = grid.piece(i);
          const std::int64_t flag = cut.first_flag(shard) + grid.flag_index(piece);
          ASSERT_TRUE(flags.insert(flag).second);
          ASSERT_EQ(flag / cut.flags().of_step, piece.k_step);
          ASSERT_LT(flag % cut.flags().of_step, cut.flags().parts);
          ASSERT_EQ(flag % cut.flags().of_step / cut.parts_of_shard(), shard) << "whose it is";
          covered += std::clamp<std::int64_t>(own.size - piece.row, 0, PieceGrid::kRows);
        }
        EXPECT_EQ(covered, own.size * cut.k_steps());
      }
      EXPECT_EQ(flags.size(), static_cast<std::size_t>(cut.flags().parts) * cut.k_steps());
      EXPECT_LT(*flags.rbegin(), cut.num_flags());
      EXPECT_EQ(cut.flags().of_step % 4, 0) << "lanes load four";
      EXPECT_EQ(PieceFlags::kMostOfStep % cut.flags().of_step, 0);
    }
  }
}

/// What warps send in their rounds: to each peer every piece once. `sent` sees them in the order in which
/// rounds are numbered.
template <class Sent>
void walk(const PieceRounds& rounds, int warps, Sent sent) {
  std::vector<PieceRound> at;
  for (int warp = 0; warp < warps; ++warp) at.emplace_back(rounds, warp);
  const int turns = (rounds.peers + rounds.at_once - 1) / rounds.at_once;
  for (int number = 0; number < turns * rounds.of_turn; ++number) {
    PieceRound& round = at[static_cast<std::size_t>(number % warps)];
    ASSERT_FALSE(round.is_over(rounds));
    ASSERT_LE(round.end(rounds) - round.first(rounds), rounds.together);
    for (int peer = round.peer(); peer < round.end_peer(rounds); ++peer) {
      for (int piece = round.first(rounds); piece < round.end(rounds); ++piece) sent(peer, piece);
    }
    round.advance(rounds, warps);
  }
  for (const PieceRound& round : at) {
    EXPECT_TRUE(round.is_over(rounds));
    EXPECT_EQ(round.first(rounds), round.end(rounds)) << "nothing is loaded for it";
  }
}

TEST(PieceRounds, BringEveryPieceOnceToEveryPeer) {
  for (const int pieces : {1, 8, 24, 1000}) {
    for (const int peers : {1, 3, 7}) {
      for (int at_once = 1; at_once <= peers; ++at_once) {
        for (const int together : {1, 3, 4}) {
          for (const int warps : {1, 2, 132}) {
            SCOPED_TRACE(testing::Message() << pieces << " pieces to " << at_once << " of " << peers
                                            << " peers, " << together << " together, " << warps << " warps");
            std::set<std::pair<int, int>> seen;
            int turn = 0;
            int last = -1;  // piece of this turn
            walk({pieces, peers, at_once, together}, warps, [&](int peer, int piece) {
              ASSERT_TRUE(seen.emplace(peer, piece).second);
              ASSERT_GE(peer / at_once, turn) << "earlier peers have all theirs";
              if (peer / at_once > turn) last = -1;
              turn = peer / at_once;
              ASSERT_GE(piece / together, last / together);
              last = piece;
            });
            EXPECT_EQ(seen.size(), static_cast<std::size_t>(pieces) * peers);
          }
        }
      }
    }
  }
}

TEST(PieceGrid, NeedsWholeTilesOrFewRows) {
  EXPECT_TRUE(whole(1, 1).is_possible());
  EXPECT_TRUE(cut_of(4 * 16384, 4, 32768).is_possible());
  EXPECT_TRUE(cut_of(2 * 128, 2, 144).is_possible()) << "a short last step";
  EXPECT_TRUE(cut_of(128, 2, 128).is_possible());
  EXPECT_TRUE(cut_of(511, 2, 128).is_possible());
  EXPECT_TRUE(cut_of(1, 2, 128).is_possible()) << "a rank without rows";
  EXPECT_FALSE(cut_of(513, 2, 128).is_possible());
  EXPECT_FALSE(cut_of(400, 200, 128).is_possible()) << "more pieces than a warp looks at";
  EXPECT_FALSE(cut_of(128, 2, 120).is_possible()) << "half a vector";
  EXPECT_FALSE(cut_of(0, 2, 128).is_possible());
  EXPECT_FALSE(cut_of(128, 2, 0).is_possible());
  EXPECT_FALSE(cut_of(std::int64_t{1} << 31, 2, 128).is_possible()) << "more than can be counted";
  EXPECT_TRUE(cut_of(255, 2, 128).shares_tiles()) << "a row is missing";
  EXPECT_FALSE(cut_of(256, 2, 128).shares_tiles());
}

}  // namespace
}  // namespace tandem::gemm
