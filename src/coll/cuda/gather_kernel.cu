#include "coll/cuda/gather_kernel.hpp"

#include "coll/cuda/meeting.cuh"

// A block takes pieces of the layers in turns, so that all links are used at all times. A thread has several
// loads under way before it stores the first: a layer may lie in a peer's memory, a few microseconds away.
// Host checks: attach.cpp (sizes and addresses).

namespace tandem::coll::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kLoads = 8;

__global__ void __launch_bounds__(kThreads)
    gather_layers(const __grid_constant__ LayerGather gather, const __grid_constant__ Meeting meeting) {
  const std::int64_t vectors = gather.layer_bytes / kGatherVector;
  constexpr std::int64_t kPiece = kThreads * kLoads;
  const std::int64_t pieces = (vectors + kPiece - 1) / kPiece * gather.num_layers;
  for (std::int64_t piece = blockIdx.x; piece < pieces; piece += gridDim.x) {
    const auto turn = static_cast<int>(piece % gather.num_layers) + gather.first;
    const int layer = turn < gather.num_layers ? turn : turn - gather.num_layers;
    const auto* const from = static_cast<const uint4*>(gather.layers[layer]);
    uint4* const to = static_cast<uint4*>(gather.out) + layer * vectors;
    const std::int64_t first = piece / gather.num_layers * kPiece + threadIdx.x;
    uint4 values[kLoads];
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      if (first + i * kThreads < vectors) values[i] = from[first + i * kThreads];
    }
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      if (first + i * kThreads < vectors) to[first + i * kThreads] = values[i];
    }
  }
  meet_behind(meeting);
}

}  // namespace

cudaError_t launch_layer_gather(const LayerGather& gather, const Meeting& meeting, int max_blocks,
                                cudaStream_t stream) {
  constexpr std::int64_t kPieceBytes = kThreads * kLoads * kGatherVector;
  const std::int64_t pieces = (gather.layer_bytes + kPieceBytes - 1) / kPieceBytes * gather.num_layers;
  if (pieces == 0) return cudaSuccess;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(pieces < max_blocks ? pieces : max_blocks));
  config.blockDim = dim3(kThreads);
  config.stream = stream;
  return cudaLaunchKernelEx(&config, gather_layers, gather, meeting);
}

tandem::cuda::KernelList gather_kernels() {
  tandem::cuda::KernelList list;
  tandem::cuda::add_kernels(list, gather_layers);
  return list;
}

}  // namespace tandem::coll::cuda
