#include "coll/cuda/gather_kernel.hpp"

#include "coll/cuda/grid_barrier.cuh"
#include "coll/cuda/mailboxes.cuh"
#include "coll/cuda/vectors.hpp"

// A block publishes its pieces of the own shard, awaits the same block of every other rank, and reads their
// pieces, from all ranks in turns, so that all links are in use. A thread has several loads under way before
// it stores the first: a peer's memory is a few microseconds away.
// Host checks: published_gather.cpp (sizes and addresses).

namespace tandem::coll::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kLoads = 8;
constexpr std::int64_t kPieceBytes = kThreads * kLoads * kVectorBytes;

/// By all threads: store(i, vector) for the vectors of a piece.
template <class Vector, class Store>
__device__ void read_piece(const void* from, std::int64_t begin, std::int64_t end, Store store) {
  constexpr auto kBytes = static_cast<std::int64_t>(sizeof(Vector));
  const auto* const vectors = static_cast<const Vector*>(from);
  const std::int64_t last = end / kBytes;
  for (std::int64_t first = begin / kBytes + threadIdx.x; first < last; first += kThreads * kLoads) {
    Vector values[kLoads];
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      if (first + i * kThreads < last) values[i] = vectors[first + i * kThreads];
    }
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      if (first + i * kThreads < last) store(first + i * kThreads, values[i]);
    }
  }
}

template <class Vector>
__global__ void __launch_bounds__(kThreads)
    gather_published(const __grid_constant__ PublishedGather gather, const __grid_constant__ Mailboxes boxes,
                     const __grid_constant__ GridBarrier at_end) {
  const Exchange exchange(boxes);
  const int rank = boxes.ranks.rank;
  const int world = boxes.ranks.world_size;
  const std::int64_t size = gather.shard_bytes;
  // The own shard is copied to the output last in its turn, while the links bring the others.
  const auto from = [&](int q) { return q == rank ? gather.shard : gather.published[q]; };
  const auto copy = [&](const void* source, void* to, std::int64_t at) {
    read_piece<Vector>(source, at, min(at + kPieceBytes, size),
                       [&](std::int64_t i, const Vector& value) { static_cast<Vector*>(to)[i] = value; });
  };
  const std::int64_t first = blockIdx.x * kPieceBytes;
  const std::int64_t stride = gridDim.x * kPieceBytes;
  for (std::int64_t at = first; at < size; at += stride) copy(gather.shard, gather.published[rank], at);
  const bool ok = exchange.meet();
  if (ok) {
    for (std::int64_t at = first; at < size; at += stride) {
      for (int step = 1; step <= world; ++step) {
        const int q = (rank + step) % world;
        copy(from(q), static_cast<std::byte*>(gather.out) + q * size, at);
      }
    }
  }
  barrier_at_end(at_end, ok);
}

}  // namespace

cudaError_t launch_published_gather(const PublishedGather& gather, const Mailboxes& boxes,
                                    const GridBarrier& at_end, cudaStream_t stream) {
  const std::int64_t pieces = (gather.shard_bytes + kPieceBytes - 1) / kPieceBytes;
  if (pieces == 0) return cudaSuccess;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(pieces < boxes.num_pieces ? pieces : boxes.num_pieces));
  config.blockDim = dim3(kThreads);
  config.stream = stream;
  return cudaLaunchKernelEx(&config,
                            gather.by_vectors ? gather_published<uint4> : gather_published<unsigned char>,
                            gather, boxes, at_end);
}

tandem::cuda::KernelList gather_kernels() {
  tandem::cuda::KernelList list;
  tandem::cuda::add_kernels(list, gather_published<uint4>, gather_published<unsigned char>);
  return list;
}

}  // namespace tandem::coll::cuda
