#pragma once

// What a kernel is told of the pieces that it sends and receives. Included by .cu files.

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <tandem/symm/kernel.hpp>

#include "gemm/piece_grid.hpp"

namespace tandem::gemm::cuda {

/// Behind one fence of a warp, see send_rounds(). A kernel whose tiles leave no room for them takes fewer.
inline constexpr int kMostPiecesTogether = 6;

/// Of a CTA that only sends, and behind one fence of it.
inline constexpr int kSenderWarps = 12;
inline constexpr int kPiecesOfSender = 8;

/// Where a peer gets the shard.
struct PieceTarget {
  std::byte* rows = nullptr;
  std::uint32_t* flags = nullptr;  ///< of these rows
};
inline constexpr int kMostPiecePeers = 32;  ///< a lane of the warp that sends flags for each

/// Sends the own shard to the ranks before this one, which multiply it first; and where tiles have rows of
/// several shards last of all to this rank itself.
struct PiecePush {
  PieceGrid grid;
  int peers = 0;  ///< to so many, of which number i is i + 1 ranks before this one, round the end
  PieceTarget to[kMostPiecePeers];
  const std::byte* rows = nullptr;  ///< the own shard
  std::uint32_t flag_value = 0;     ///< the epoch of the op
  int senders = 0;                  ///< CTAs that only send; 0: every CTA does, beside its tiles
  PieceRounds rounds;
  std::int64_t round_ps = 0;  ///< no round is sent earlier than its number times this, in picoseconds
};

/// Fills in how a warp of each CTA sends: to `at_once` peers at a time, and at most `most_together` pieces
/// behind a fence.
void send_rounds(PiecePush& push, int at_once, int most_together);

/// How many of `idle` CTAs send all pieces while the others multiply; 0 where they would take longer than
/// `wave_us`, which all of them are needed in.
[[nodiscard]] int senders_among(int idle, const PiecePush& push, double wave_us);

/// What arrives in pieces, if anything: `count` of the `chunks` from the first on, round the end.
struct IncomingPieces {
  const std::uint32_t* flags = nullptr;  ///< of all rows
  PieceFlags cut = {};
  int log2_lanes_of_step = 1;  ///< lanes of a warp that look at a step's flags, four each
  int tiles_per_chunk = 1;     ///< rows of tiles; 0: a tile needs the pieces of all chunks
  int parts_per_chunk = 1;     ///< flags of a step that are a chunk's, where a tile needs all
  int first = 0;
  int count = 0;
  int chunks = 1;

  [[nodiscard]] constexpr int k_steps() const { return cut.k_steps; }
  [[nodiscard]] constexpr bool has(int chunk) const {
    return (chunk < first ? chunk + chunks : chunk) - first < count;
  }
  /// The row of flags that a tile in row `tile` of tiles waits for.
  [[nodiscard]] constexpr int flag_row(int tile) const { return tiles_per_chunk == 0 ? 0 : tile; }
  /// Whose flag number `part` of a step is.
  [[nodiscard]] constexpr int chunk_of(int tile, int part) const {
    return tiles_per_chunk == 0 ? part / parts_per_chunk : tile / tiles_per_chunk;
  }
};
/// Of all shards of `cut`, each in as many chunks, none of which comes in pieces yet.
[[nodiscard]] IncomingPieces incoming_pieces(const PieceCut& cut, int chunks_of_shard,
                                             const std::uint32_t* flags);

/// For a rank that multiplies nothing: sends, and waits for what is sent to it in pieces.
struct PieceExchangeLaunch {
  PiecePush push;
  IncomingPieces pieces;
  std::uint32_t expected = 1;
  int chunks_per_rank = 1;
  int tiles = 0;  ///< rows of tiles of all ranks
  symm::KernelHandle waits;
};
[[nodiscard]] cudaError_t launch_exchange_pieces(const PieceExchangeLaunch& what, cudaStream_t stream);

/// That kernel.
[[nodiscard]] const void* exchange_pieces_kernel();

}  // namespace tandem::gemm::cuda
