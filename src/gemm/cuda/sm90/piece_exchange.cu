#include "gemm/cuda/sm90/piece_exchange.cuh"

#include <algorithm>

#include "cost/machine.hpp"

namespace tandem::gemm::cuda {
namespace {

constexpr int kCtas = 32;  // of one warp: see push_pieces()

// First it sends, so nobody waits for a rank that waits.
__global__ void __launch_bounds__(32) exchange_pieces(const __grid_constant__ PieceExchangeLaunch what) {
  const auto warp = static_cast<int>(blockIdx.x);
  __shared__ PieceStage<kMostPiecesTogether> stage;
  if (what.push.peers > 0) push_pieces(what.push, warp, kCtas, stage.data);

  symm::ChunkSignals signals;
  signals.expected = what.expected;
  signals.chunks_per_rank = what.chunks_per_rank;
  signals.waits = what.waits;
  bool gave_up = false;
  const IncomingPieces& pieces = what.pieces;
  for (int tile = warp; tile < what.tiles; tile += kCtas) {
    if (pieces.tiles_per_chunk > 0 && !pieces.has(tile / pieces.tiles_per_chunk)) continue;
    for (int step = 0; step < pieces.k_steps();) step = await_pieces(signals, pieces, tile, step, gave_up);
  }
}

}  // namespace

cudaError_t launch_exchange_pieces(const PieceExchangeLaunch& what, cudaStream_t stream) {
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(kCtas);
  config.blockDim = dim3(32);
  config.stream = stream;
  return cudaLaunchKernelEx(&config, exchange_pieces, what);
}

void send_rounds(PiecePush& push, int at_once, int most_together) {
  // Of a warp: with less the time of its fences sets the pace, and twice as much stays in loads' way.
  constexpr int kBytesBehindFence = 12 << 10;
  const int piece_bytes = PieceGrid::kBytes * at_once;
  const int together = std::clamp(kBytesBehindFence / piece_bytes, 1, most_together);
  push.rounds = PieceRounds(push.grid.size(), push.peers, at_once, together);
  push.round_ps = std::int64_t{1'000'000} * together * piece_bytes / cost::kH200.piece_bytes_per_us;
}

IncomingPieces incoming_pieces(const PieceCut& cut, int chunks_of_shard, const std::uint32_t* flags) {
  IncomingPieces pieces{.flags = flags, .cut = cut.flags(), .chunks = cut.shards * chunks_of_shard};
  constexpr int kWordsOfLane = 4;
  for (int lanes = pieces.cut.of_step / kWordsOfLane, log2 = 0; lanes > 0; lanes /= 2)
    pieces.log2_lanes_of_step = log2++;
  if (cut.shares_tiles()) {
    pieces.tiles_per_chunk = 0;
    pieces.parts_per_chunk = cut.parts_of_shard();
  } else {
    pieces.tiles_per_chunk = static_cast<int>(cut.shard_rows / PieceGrid::kTileRows / chunks_of_shard);
  }
  return pieces;
}

int senders_among(int idle, const PiecePush& push, double wave_us) {
  constexpr int kMost = 16;
  if (push.peers == 0 || idle == 0) return 0;
  const double round_bytes = 1.0 * kSenderWarps * kPiecesOfSender * PieceGrid::kBytes * push.peers;
  const double bytes = 1.0 * push.grid.size() * PieceGrid::kBytes * push.peers;
  const int senders = idle < kMost ? idle : kMost;
  const double round_us = cost::kH200.sender_round_us + round_bytes / cost::kH200.sender_bytes_per_us;
  return bytes / round_bytes / senders * round_us <= wave_us ? senders : 0;
}

const void* exchange_pieces_kernel() {
  return reinterpret_cast<const void*>(&exchange_pieces);
}

}  // namespace tandem::gemm::cuda
