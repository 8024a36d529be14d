#pragma once

// A shard on its way from inside a kernel that multiplies: a warp of each CTA copies pieces to the peers,
// another looks for those that come from them. See gemm/piece_grid.hpp.

#include <tandem/symm/chunk_signals.cuh>

#include "device/cuda/next_kernel.cuh"
#include "gemm/cuda/sm90/piece_exchange.hpp"
#include "gemm/cuda/sm90/piece_words.cuh"

namespace tandem::gemm::cuda {

inline constexpr unsigned kWholeWarp = 0xffffffffU;

// A warp's share of a piece: vectors of 16 bytes.
inline constexpr int kVectorsOfPiece = PieceGrid::kStepBytes / 16;
inline constexpr int kRowsAtOnce = 32 / kVectorsOfPiece;
inline constexpr int kTimes = PieceGrid::kRows / kRowsAtOnce;

/// A lane's vectors of a piece: vector `lane % 8` of rows `lane / 8`, and every fourth one behind it.
struct LaneOfPiece {
  std::int64_t offset;  ///< of the first, from its shard's first byte
  int rows;             ///< from the first one on that the shard has, if any
};
__device__ inline LaneOfPiece lane_of_piece(const PieceGrid& grid, const PieceGrid::Piece& piece) {
  const int row = piece.row + static_cast<int>(threadIdx.x % 32 / kVectorsOfPiece);
  const int byte =
      piece.k_step * PieceGrid::kStepBytes + static_cast<int>(threadIdx.x % kVectorsOfPiece) * 16;
  const bool is_inside = byte < grid.row_bytes();
  return {std::int64_t{row} * grid.row_bytes() + byte, is_inside ? grid.rows() - row : 0};
}
__device__ inline std::int64_t lane_stride(const PieceGrid& grid) {
  return std::int64_t{kRowsAtOnce} * grid.row_bytes();
}

/// A warp's pieces on their way: a round of them in shared memory, each lane's own vectors side by side.
template <int kPieces>
struct alignas(16) PieceStage {
  std::byte data[kPieces * PieceGrid::kBytes];
};

/// Begins to load pieces [first, end) into the stage. Loads take as long as a fence where a product uses the
/// memory too, so those of the next round are under way during the fence of this one.
__device__ inline void load_pieces(const PiecePush& push, int first, int end, std::byte* stage) {
  const SharedAddress lane_stage = shared_address(stage) + threadIdx.x % 32 * 16;
#pragma unroll 1
  for (int index = first; index < end; ++index) {
    const LaneOfPiece lane = lane_of_piece(push.grid, push.grid.piece(index));
    const SharedAddress to = lane_stage + (index - first) * PieceGrid::kBytes;
#pragma unroll
    for (int i = 0; i < kTimes; ++i) {
      if (i * kRowsAtOnce < lane.rows)
        begin_load(to + i * 32 * 16, push.rows + lane.offset + i * lane_stride(push.grid));
    }
  }
  end_loads();
}

/// Peers [begin, end), as a piece goes to them.
struct PiecePeers {
  int begin;
  int end;
};

/// Stores piece `index`, which is number `number` of the stage, to `peers`. A lane stores what it has loaded
/// itself.
__device__ inline void store_piece(const PiecePush& push, int index, int number, PiecePeers peers,
                                   const std::byte* stage) {
  const LaneOfPiece lane = lane_of_piece(push.grid, push.grid.piece(index));
  const std::int64_t stride = lane_stride(push.grid);
  const auto* const from =
      reinterpret_cast<const uint4*>(stage + number * PieceGrid::kBytes) + threadIdx.x % 32;
  uint4 values[kTimes];
#pragma unroll
  for (int i = 0; i < kTimes; ++i) values[i] = from[i * 32];
#pragma unroll 1
  for (int peer = peers.begin; peer < peers.end; ++peer) {
    std::byte* const to = push.to[peer].rows + lane.offset;
#pragma unroll
    for (int i = 0; i < kTimes; ++i) {
      if (i * kRowsAtOnce < lane.rows) *reinterpret_cast<uint4*>(to + i * stride) = values[i];
    }
  }
}

__device__ inline void flag_piece(const PiecePush& push, int index, int peer) {
  const std::int64_t flag = push.grid.flag_index(push.grid.piece(index));
  symm::detail::store_relaxed(push.to[peer].flags + flag, push.flag_value);
}

/// By the lane of one peer.
__device__ inline void flag_pieces(const PiecePush& push, int first, int end, int peer) {
  fence_system();
#pragma unroll 1
  for (int index = first; index < end; ++index) flag_piece(push, index, peer);
}

/// By warp number `warp` of `count` that push together, with a stage for a round; it waits for nobody. One of
/// them a multiprocessor: a fence waits for all its stores, and two warps that store while the other's fence
/// is under way hold each other up without end.
///
/// Memory order: all lanes store, then __syncwarp(), then a lane of each peer has a fence of the system's
/// scope and stores the flags. The fence is cumulative, so whoever acquires a flag sees what all lanes
/// stored before. It takes as long as the stores take to the peer and back.
///
/// Pieces are paced in the order in which they are needed: if all multiprocessors sent at one time as fast
/// as they can, what their products load would stand behind what they send. Where a product has more than one
/// wave of tiles, that is also an order of the peers: whoever multiplies the shard in a later wave gets it
/// behind those that do in the first.
__device__ inline void push_pieces(const PiecePush& push, int warp, int count, std::byte* stage) {
  PieceRound round(push.rounds, warp);
  load_pieces(push, round.first(push.rounds), round.end(push.rounds), stage);
  const auto lane = static_cast<int>(threadIdx.x % 32);
  tandem::cuda::await_kernel_before();
  const std::int64_t begin_ns = symm::detail::global_time_ns();
  for (std::int64_t number = warp; !round.is_over(push.rounds); number += count) {
    const int first = round.first(push.rounds);
    const int end = round.end(push.rounds);
    const PiecePeers peers{round.peer(), round.end_peer(push.rounds)};
    await_loads();
    const std::int64_t due_ns = begin_ns + number * push.round_ps / 1000;
    while (symm::detail::global_time_ns() < due_ns) __nanosleep(64);
#pragma unroll 1
    for (int index = first; index < end; ++index) store_piece(push, index, index - first, peers, stage);
    round.advance(push.rounds, count);
    load_pieces(push, round.first(push.rounds), round.end(push.rounds), stage);
    __syncwarp();
    if (lane >= peers.begin && lane < peers.end) flag_pieces(push, first, end, lane);
    __syncwarp();
  }
}

/// Shared memory of a CTA that multiplies nothing.
struct alignas(16) SenderStages {
  std::byte data[kSenderWarps][kPiecesOfSender * PieceGrid::kBytes];
};

/// By all warps of a CTA that multiplies nothing, number `sender` of push.senders.
///
/// Memory order: as in push_pieces(), with a __syncthreads() in place of the __syncwarp(): all warps store,
/// and then the lanes of one have a fence each and store the flags. The others load meanwhile, and store
/// again when those are done.
__device__ inline void send_pieces(const PiecePush& push, int sender, SenderStages& stages) {
  const int warp = static_cast<int>(threadIdx.x / 32);
  const int lane = static_cast<int>(threadIdx.x % 32);
  std::byte* const stage = stages.data[warp];
  const int size = push.grid.size();
  // The first round is short: what is needed first is there soon. A small shard is one round.
  constexpr int kMostOfOnly = 3;
  const int of_all = (size + push.senders * kSenderWarps - 1) / (push.senders * kSenderWarps);
  int of_warp = of_all <= kMostOfOnly ? of_all : 1;
  int first = sender * kSenderWarps * of_warp;
  int next_round = push.senders * kSenderWarps * of_warp;
  const auto begin_of_warp = [&] { return min(first + warp * of_warp, size); };
  const auto end_of_warp = [&] { return min(first + (warp + 1) * of_warp, size); };
  load_pieces(push, begin_of_warp(), end_of_warp(), stage);
  tandem::cuda::await_kernel_before();
  while (first < size) {
    const int begin = begin_of_warp();
    const int end = end_of_warp();
    await_loads();
#pragma unroll 1
    for (int index = begin; index < end; ++index)
      store_piece(push, index, index - begin, {0, push.peers}, stage);
    const int sent_begin = first;
    const int sent_end = min(first + kSenderWarps * of_warp, size);
    of_warp = kPiecesOfSender;
    first = next_round + sender * kSenderWarps * of_warp;
    next_round += push.senders * kSenderWarps * of_warp;
    load_pieces(push, begin_of_warp(), end_of_warp(), stage);
    __syncthreads();
    if (warp == 0) {
      fence_system();
      for (int i = lane; i < (sent_end - sent_begin) * push.peers; i += 32) {
        flag_piece(push, sent_begin + i / push.peers, i % push.peers);
      }
    }
    __syncthreads();
  }
}

/// By a whole warp: waits until `step` of a tile has come, and returns the first step behind it that has not,
/// as far as one look goes; all steps if the wait gave up, and `gave_up` is set on every lane then.
///
/// Memory order: the look is relaxed and decides nothing. Then each lane acquires the flags that it has
/// looked at, and __syncwarp() hands on what they acquired: behind this function every lane sees these steps'
/// pieces. Looks come seldom: the fences of the warp that pushes wait for them too.
__device__ inline int await_pieces(const symm::ChunkSignals& signals, const IncomingPieces& pieces, int tile,
                                   int step, bool& gave_up) {
  constexpr int kWordsOfLane = 4;
  constexpr int kFirstLooks = 256;
  constexpr unsigned kNapNs = 100;
  if (gave_up) return pieces.k_steps();
  const auto lane = threadIdx.x % 32;
  const auto lanes_of_step = static_cast<unsigned>(pieces.cut.of_step) / kWordsOfLane;
  const unsigned step_of_lane = lane >> pieces.log2_lanes_of_step;
  const int part = static_cast<int>(lane & (lanes_of_step - 1)) * kWordsOfLane;
  const bool is_any = step + static_cast<int>(step_of_lane) < pieces.k_steps();
  const std::uint32_t* const words =
      pieces.flags +
      pieces.cut.index(pieces.flag_row(tile), step + (is_any ? static_cast<int>(step_of_lane) : 0), part);
  const auto is_missing = [&](std::uint32_t word, int idx) {
    return part + idx < pieces.cut.parts && !signals.has_come(word);
  };
  for (int look = 0;; ++look) {
    const uint4 seen = load_relaxed(reinterpret_cast<const uint4*>(words));
    const bool misses =
        is_missing(seen.x, 0) || is_missing(seen.y, 1) || is_missing(seen.z, 2) || is_missing(seen.w, 3);
    const unsigned missing = __ballot_sync(kWholeWarp, misses);
    const int first = missing == 0 ? 32 : __ffs(static_cast<int>(missing)) - 1;
    const int steps = first >> pieces.log2_lanes_of_step;
    if (steps > 0) {
      load_acquire(reinterpret_cast<const uint4*>(words));
      __syncwarp();
      return min(step + steps, pieces.k_steps());
    }
    if (look < kFirstLooks) {
      __nanosleep(kNapNs);
      continue;
    }
    // It takes long: look around too, at a word that is missing.
    bool has_come = true;
    if (static_cast<int>(lane) == first) {
      const int idx = is_missing(seen.x, 0) ? 0 : is_missing(seen.y, 1) ? 1 : is_missing(seen.z, 2) ? 2 : 3;
      const int chunk = signals.first_number + pieces.chunk_of(tile, part + idx);
      std::int64_t begin_ns = 0;
      has_come = symm::detail::wait_until(
          signals.waits, {symm::KernelCall::kAwaitChunk, chunk / signals.chunks_per_rank, chunk},
          signals.expected, begin_ns, [&](std::uint32_t& word) {
            word = symm::detail::load_relaxed(words + idx);
            return !is_missing(word, idx);
          });
    }
    gave_up = !__all_sync(kWholeWarp, has_come);
    if (gave_up) return pieces.k_steps();
  }
}

/// How many steps, over all of a CTA's tiles that come in pieces, one after the other, have come: one warp
/// looks at the flags, which takes about as long as a few steps of the product, and tells the thread that
/// loads by this word of shared memory. Zero before either begins.
struct Announcement {
  std::uint32_t& word;
  std::uint32_t steps;
};

__device__ inline void announce(const Announcement& what) {
  store_release(shared_address(&what.word), what.steps);
}

/// By the warp that looks: a tile, behind the steps of `before`.
__device__ inline void announce_pieces(const symm::ChunkSignals& signals, const IncomingPieces& pieces,
                                       int tile, const Announcement& before, bool& gave_up) {
  for (int step = 0; step < pieces.k_steps();) {
    step = await_pieces(signals, pieces, tile, step, gave_up);
    if (threadIdx.x % 32 == 0) announce({before.word, before.steps + static_cast<std::uint32_t>(step)});
  }
}

/// By a warp, before it meets the thread that loads: nothing has come yet.
__device__ inline void begin_announcing(std::uint32_t& announced) {
  announce({announced, 0});
  __threadfence_block();
}

/// By the thread that loads: waits until more than `steps` have been announced, and returns how many. What
/// they stand for is visible to its tensor loads. Until then it calls meanwhile(), which returns whether it
/// found something to do. What it waits beside that is noted as a wait for `chunk`, or for no one of them
/// where shards share tiles.
///
/// Memory order: what the announcing warp acquired from the sender happens before its release, this acquire
/// and the proxy fence behind it. The wait ends, since that of the announcing warp does.
template <class Meanwhile>
__device__ std::uint32_t await_announced(std::uint32_t& announced, std::uint32_t steps,
                                         const symm::ChunkSignals& signals, const IncomingPieces& pieces,
                                         int chunk, Meanwhile meanwhile) {
  const SharedAddress word = shared_address(&announced);
  std::uint32_t now = 0;
  std::int64_t begin_ns = 0;
  const auto is_there = [&] { return static_cast<std::int32_t>(now - steps) > 0; };
  // Not in the loop: an acquire has the caches forget what they hold, and everybody's loads wait for that.
  for (;;) {
    now = load_relaxed(word);
    if (is_there()) break;
    if (meanwhile()) continue;
    if (signals.log && begin_ns == 0) begin_ns = symm::detail::global_time_ns();
    __nanosleep(20);
  }
  now = load_acquire(word);
  tandem::cuda::fence_tensor_loads();
  if (begin_ns != 0) {
    const bool shares_tiles = pieces.tiles_per_chunk == 0;
    tandem::cuda::note_wait(signals.log, begin_ns, shares_tiles ? -1 : signals.first_number + chunk);
  }
  return now;
}

}  // namespace tandem::gemm::cuda
