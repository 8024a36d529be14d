#include "gemm/cuda/sm90/patch_exchange.cuh"

#include <algorithm>

#include "cost/machine.hpp"

namespace tandem::gemm::cuda {
namespace {

constexpr int kCtas = 32;  // of one warp: see push_patches()

// First it sends, so nobody waits for a rank that waits.
__global__ void __launch_bounds__(32) exchange_patches(const __grid_constant__ PatchExchangeLaunch what) {
  const auto warp = static_cast<int>(blockIdx.x);
  __shared__ PatchStage<kMostPatchesTogether> stage;
  if (what.push.peers > 0) push_patches(what.push, warp, kCtas, stage.data);

  symm::ChunkSignals signals;
  signals.expected = what.expected;
  signals.chunks_per_rank = what.chunks_per_rank;
  signals.waits = what.waits;
  bool gave_up = false;
  for (int tile = warp; tile < what.tiles; tile += kCtas) {
    if (!what.patches.has(tile / what.patches.tiles_per_chunk)) continue;
    for (int step = 0; step < what.patches.k_steps;)
      step = await_patches(signals, what.patches, tile, step, gave_up);
  }
}

}  // namespace

cudaError_t launch_exchange_patches(const PatchExchangeLaunch& what, cudaStream_t stream) {
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(kCtas);
  config.blockDim = dim3(32);
  config.stream = stream;
  return cudaLaunchKernelEx(&config, exchange_patches, what);
}

void send_rounds(PatchPush& push, int at_once, int most_together) {
  // Of a warp: with less the time of its fences sets the pace, and twice as much stays in loads' way.
  constexpr int kBytesBehindFence = 12 << 10;
  const int patch_bytes = PatchGrid::kBytes * at_once;
  const int together = std::clamp(kBytesBehindFence / patch_bytes, 1, most_together);
  push.rounds = PatchRounds(push.grid.size(), push.peers, at_once, together);
  push.round_ps = std::int64_t{1'000'000} * together * patch_bytes / cost::kH200.patch_bytes_per_us;
}

int peers_at_once(int peers, int wave, std::int64_t clusters, int shards) {
  if (clusters <= wave) return peers;
  const std::int64_t of_shard = std::max<std::int64_t>(clusters / shards, 1);
  const std::int64_t of_wave = (wave + of_shard / 2) / of_shard;
  return static_cast<int>(std::clamp<std::int64_t>(of_wave - 1, 1, peers));  // one of them is the own
}

int senders_among(int idle, const PatchPush& push, double wave_us) {
  constexpr int kMost = 16;
  if (push.peers == 0 || idle == 0) return 0;
  const double round_bytes = 1.0 * kSenderWarps * kPatchesOfSender * PatchGrid::kBytes * push.peers;
  const double bytes = 1.0 * push.grid.size() * PatchGrid::kBytes * push.peers;
  const int senders = idle < kMost ? idle : kMost;
  const double round_us = cost::kH200.sender_round_us + round_bytes / cost::kH200.sender_bytes_per_us;
  return bytes / round_bytes / senders * round_us <= wave_us ? senders : 0;
}

const void* exchange_patches_kernel() {
  return reinterpret_cast<const void*>(&exchange_patches);
}

}  // namespace tandem::gemm::cuda
