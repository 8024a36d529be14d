#include "coll/cuda/exchange_kernels.hpp"

#include "coll/cuda/layer_sum.cuh"
#include "coll/cuda/mailboxes.cuh"

// Gather and scatter of what is small, in one kernel and one way to the peers: push, wait, take from the own
// boxes. Host checks: exchanges.cpp (what by_vectors needs, that pieces fit into boxes).

namespace tandem::coll::cuda {
namespace {

constexpr int kThreads = 256;
static_assert(kMaxAddresses <= kThreads, "a thread awaits a peer");

/// What block number blockIdx.x has of a part.
__device__ Part piece_of(const Part& part, std::int64_t piece_bytes) {
  const std::int64_t from = min(part.size, blockIdx.x * piece_bytes);
  return {part.begin + from, min(part.size - from, piece_bytes)};
}

/// Calls move(i) for the vectors of so many bytes, by all threads.
template <class Vector, int kUnroll = 4, class Move>
__device__ void for_vectors(std::int64_t num_bytes, Move move) {
  const std::int64_t count = num_bytes / static_cast<std::int64_t>(sizeof(Vector));
#pragma unroll kUnroll
  for (std::int64_t i = threadIdx.x; i < count; i += kThreads) move(i);
}

template <class Vector>
__global__ void __launch_bounds__(kThreads, 2)
    exchanged_gather(const __grid_constant__ ExchangedGather gather, const __grid_constant__ Mailboxes boxes,
                     const std::int64_t piece_bytes) {
  const Exchange exchange(boxes);
  const int rank = boxes.ranks.rank;
  const int world = boxes.ranks.world_size;
  const auto out_of = [&](const Part& piece) {
    return reinterpret_cast<Vector*>(static_cast<std::byte*>(gather.out) + piece.begin);
  };
  const Part own = piece_of(gather.parts[rank], piece_bytes);
  const auto* const from = reinterpret_cast<const Vector*>(static_cast<const std::byte*>(gather.shard) +
                                                           own.begin - gather.parts[rank].begin);
  for_vectors<Vector>(own.size, [&](std::int64_t i) {
    const Vector value = from[i];
    for (int step = 1; step < world; ++step) {
      reinterpret_cast<Vector*>(exchange.box((rank + step) % world, rank))[i] = value;
    }
    out_of(own)[i] = value;
  });
  if (!exchange.meet()) return;
  for (int step = 1; step < world; ++step) {
    const int sender = (rank + step) % world;
    const Part piece = piece_of(gather.parts[sender], piece_bytes);
    const auto* const box = reinterpret_cast<const Vector*>(exchange.box(rank, sender));
    for_vectors<Vector>(piece.size, [&](std::int64_t i) { out_of(piece)[i] = box[i]; });
  }
}

template <class In, class Out, int kWidth>
__global__ void __launch_bounds__(kThreads, 2)
    exchanged_sum(const __grid_constant__ ExchangedSum sum, const __grid_constant__ Mailboxes boxes,
                  const std::int64_t piece_bytes) {
  using Vector = Held<In, kWidth>;
  const Exchange exchange(boxes);
  const int rank = boxes.ranks.rank;
  const int world = boxes.ranks.world_size;
  // The own chunk too: layers are alike then.
  for (int step = 1; step <= world; ++step) {
    const int receiver = (rank + step) % world;
    const Part piece = piece_of(sum.parts[receiver], piece_bytes);
    const auto* const from =
        reinterpret_cast<const Vector*>(static_cast<const std::byte*>(sum.input) + piece.begin);
    auto* const box = reinterpret_cast<Vector*>(exchange.box(receiver, rank));
    for_vectors<Vector>(piece.size, [&](std::int64_t i) { box[i] = from[i]; });
  }
  if (!exchange.meet()) return;
  const Part own = piece_of(sum.parts[rank], piece_bytes);
  const std::int64_t first = (own.begin - sum.parts[rank].begin) / static_cast<std::int64_t>(sizeof(In));
  for_vectors<Vector, 1>(own.size, [&](std::int64_t i) {
    float sums[kWidth];
    add_layers<In, kWidth>(
        world, [&](int batch, int layer) { return exchange.box(rank, batch + layer); }, i * kWidth, sums);
    finish<Out>(sum.sum, first + i * kWidth, sums);
  });
}

using SumKernel = void (*)(ExchangedSum, Mailboxes, std::int64_t);

SumKernel sum_kernel_of(DType in, DType out, bool by_vectors) {
  return with_types(in, out, by_vectors,
                    []<class In, class Out, int kWidth>(Types<In, Out, kWidth>) -> SumKernel {
                      return exchanged_sum<In, Out, kWidth>;
                    });
}

template <class What>
cudaError_t launch(void (*kernel)(What, Mailboxes, std::int64_t), const What& what, const Mailboxes& boxes,
                   const Pieces& pieces, cudaStream_t stream) {
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(pieces.count));
  config.blockDim = dim3(kThreads);
  config.stream = stream;
  return cudaLaunchKernelEx(&config, kernel, what, boxes, pieces.bytes);
}

}  // namespace

cudaError_t launch_exchanged_gather(const ExchangedGather& gather, const Mailboxes& boxes,
                                    const Pieces& pieces, cudaStream_t stream) {
  return launch(gather.by_vectors ? exchanged_gather<uint4> : exchanged_gather<unsigned char>, gather, boxes,
                pieces, stream);
}

cudaError_t launch_exchanged_sum(const ExchangedSum& sum, const Mailboxes& boxes, const Pieces& pieces,
                                 cudaStream_t stream) {
  return launch(sum_kernel_of(sum.sum.in_dtype, sum.sum.out_dtype, sum.sum.by_vectors), sum, boxes, pieces,
                stream);
}

tandem::cuda::KernelList exchange_kernels() {
  tandem::cuda::KernelList list = sum_kernels(sum_kernel_of);
  tandem::cuda::add_kernels(list, exchanged_gather<uint4>, exchanged_gather<unsigned char>);
  return list;
}

}  // namespace tandem::coll::cuda
