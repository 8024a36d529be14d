// Where boxes and words of small exchanges lie, and how bytes are cut into pieces. Needs no GPU.
#include "coll/cuda/mailboxes.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "coll/cuda/gpus_of_ranks.hpp"

namespace tandem::coll::cuda {
namespace {

static_assert(Mailboxes::kMostBytes == 2 << 20,
              "cost_transfers_test.cpp holds the model of collectives against results of this size");

TEST(CollCudaMailboxes, NoTwoThingsShareMemory) {
  for (const int world : {2, 3, 16}) {
    for (const int num_pieces : {1, 8, 64}) {
      Mailboxes boxes;
      boxes.ranks.world_size = world;
      boxes.num_pieces = num_pieces;
      std::vector<std::pair<std::int64_t, std::int64_t>> ranges;  // begin, end
      const auto add = [&](std::int64_t begin, std::int64_t size) {
        EXPECT_EQ(begin % std::min<std::int64_t>(size, 16), 0);
        ranges.emplace_back(begin, begin + size);
      };
      for (int piece = 0; piece < num_pieces; ++piece) {
        add(boxes.epoch_at(piece), 4);
        for (const std::uint32_t slot : {0U, 1U}) {
          for (int sender = 0; sender < world; ++sender) {
            add(boxes.word_at(slot, piece, sender), 4);
            add(boxes.box_at(slot, piece, sender), Mailboxes::kBoxBytes);
          }
        }
      }
      std::sort(ranges.begin(), ranges.end());
      EXPECT_GE(ranges.front().first, 0);
      EXPECT_LE(ranges.back().second, boxes.size_bytes());
      for (std::size_t i = 1; i < ranges.size(); ++i) EXPECT_LE(ranges[i - 1].second, ranges[i].first);
    }
  }
}

TEST(CollCudaMailboxes, PiecesAreAllBytesOnceAndFitIntoBoxes) {
  for (const int max_pieces : {1, 8, 64}) {
    const std::int64_t most = max_pieces * Mailboxes::kBoxBytes;
    for (const std::int64_t num_bytes :
         {std::int64_t{0}, std::int64_t{1}, std::int64_t{15}, std::int64_t{4096}, std::int64_t{4097},
          std::int64_t{100'003}, most - 1, most}) {
      if (num_bytes > most) continue;
      const Pieces pieces = cut_into_pieces(num_bytes, max_pieces);
      EXPECT_LE(pieces.count, max_pieces);
      EXPECT_LE(pieces.bytes, Mailboxes::kBoxBytes);
      EXPECT_EQ(pieces.bytes % 16, 0) << "boxes are whole vectors";
      EXPECT_GE(pieces.count * pieces.bytes, num_bytes);
      EXPECT_TRUE(num_bytes == 0 || (pieces.count - 1) * pieces.bytes < num_bytes) << "no piece is empty";
    }
  }
}

Place place_on(char gpu, int num_multiprocessors) {
  Place place{.gpu = {}, .num_multiprocessors = num_multiprocessors};
  place.gpu.bytes[0] = gpu;
  return place;
}

// Blocks that wait leave half of the multiprocessors to a product that they wait for.
TEST(CollCudaMailboxes, RanksThatShareAGpuLeaveRoom) {
  EXPECT_EQ(num_pieces_for(std::vector<Place>{place_on(1, 132), place_on(2, 132)}), Mailboxes::kMostPieces);
  EXPECT_EQ(num_pieces_for(std::vector<Place>(2, place_on(1, 132))), 8);
  EXPECT_EQ(num_pieces_for(std::vector<Place>(8, place_on(1, 132))), 8);
  EXPECT_EQ(num_pieces_for(std::vector<Place>(16, place_on(1, 132))), 4);
  EXPECT_EQ(num_pieces_for(std::vector<Place>(16, place_on(1, 20))), 1);
  EXPECT_EQ(num_pieces_for(std::vector<Place>{place_on(1, 132), place_on(2, 30), place_on(2, 30)}), 7)
      << "the same on every rank";
}

}  // namespace
}  // namespace tandem::coll::cuda
