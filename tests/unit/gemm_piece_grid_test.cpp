// How rows are cut that products send: what sender and receiver have to find alike.
#include "gemm/piece_grid.hpp"

#include <gtest/gtest.h>

#include <set>
#include <tuple>
#include <utility>
#include <vector>

namespace tandem::gemm {
namespace {

TEST(PieceGrid, HoldsEveryPieceOnceStepByStepInK) {
  for (const int tiles : {1, 2, 5}) {
    for (const int k_steps : {1, 3, 128}) {
      const PieceGrid grid(tiles, k_steps);
      std::set<std::tuple<int, int, int>> seen;
      std::set<std::int64_t> flags;
      int last_step = 0;
      for (int i = 0; i < grid.size(); ++i) {
        const PieceGrid::Piece piece = grid.piece(i);
        ASSERT_GE(piece.k_step, last_step);
        last_step = piece.k_step;
        ASSERT_LT(piece.tile, tiles);
        ASSERT_LT(piece.k_step, k_steps);
        ASSERT_LT(piece.part, PieceGrid::kOfStep);
        ASSERT_TRUE(seen.emplace(piece.tile, piece.k_step, piece.part).second);
        flags.insert(PieceGrid::flag_index(piece.tile, k_steps, piece.k_step, piece.part));
      }
      EXPECT_EQ(flags.size(), static_cast<std::size_t>(grid.size())) << "a flag each";
      EXPECT_EQ(*flags.rbegin(), grid.size() - 1) << "and no gaps";
      EXPECT_EQ(grid.size() * PieceGrid::kBytes,
                tiles * PieceGrid::kTileRows * k_steps * PieceGrid::kStepBytes);
    }
  }
}

// A receiver looks at the eight flags of a tile's step with one load.
TEST(PieceGrid, FlagsOfAStepLieSideBySide) {
  EXPECT_EQ(PieceGrid::flag_index(0, 4, 0, 7), 7);
  EXPECT_EQ(PieceGrid::flag_index(0, 4, 1, 0), 8);
  EXPECT_EQ(PieceGrid::flag_index(1, 4, 0, 0), 32);
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

TEST(PieceGrid, NeedsWholeTilesAndSteps) {
  EXPECT_TRUE(PieceGrid::accepts(128, 128));
  EXPECT_TRUE(PieceGrid::accepts(16384, 32768));
  EXPECT_FALSE(PieceGrid::accepts(64, 128));
  EXPECT_FALSE(PieceGrid::accepts(200, 128));
  EXPECT_FALSE(PieceGrid::accepts(128, 144));
  EXPECT_FALSE(PieceGrid::accepts(0, 128));
  EXPECT_FALSE(PieceGrid::accepts(128, 0));
  EXPECT_FALSE(PieceGrid::accepts(std::int64_t{1} << 31, 128)) << "more than can be counted";
}

}  // namespace
}  // namespace tandem::gemm
