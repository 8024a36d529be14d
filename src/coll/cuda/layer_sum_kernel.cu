#include "coll/cuda/layer_sum_kernel.hpp"

#include <algorithm>

#include "coll/cuda/grid_barrier.cuh"
#include "coll/cuda/layer_sum.cuh"
#include "coll/cuda/mailboxes.cuh"
#include "coll/cuda/vectors.hpp"

// Host checks: layer_sum.cpp (what by_vectors needs), coll/checks.cpp (types and sizes).

namespace tandem::coll::cuda {
namespace {

static_assert(kMaxAddresses == 2 * kLayerBatch);

template <class In, class Out, int kWidth>
__device__ void add_up(const LayerSum& sum) {
  // Dynamic indices into the addresses stay in the constant bank: `sum` is never copied.
  const auto address_of = [&](int first, int i) {
    return static_cast<const char*>(sum.layers[first % kMaxAddresses + i]) +
           first / kMaxAddresses * sum.round_bytes;
  };
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kLayerSumThreads * kWidth;
  std::int64_t at = (static_cast<std::int64_t>(blockIdx.x) * kLayerSumThreads + threadIdx.x) * kWidth;
  // Few layers: several places at once, so that as many loads are under way.
  constexpr int kPair = 2;
  if (sum.num_layers <= kPair) {
    constexpr int kPlaces = 4;
    for (; at + (kPlaces - 1) * step < sum.num_elements; at += kPlaces * step) {
      float sums[kPlaces][kWidth];
#pragma unroll
      for (int i = 0; i < kPlaces; ++i)
        add_layers<In, kWidth, kPair>(sum.num_layers, address_of, at + i * step, sums[i]);
#pragma unroll
      for (int i = 0; i < kPlaces; ++i) finish<Out>(sum, at + i * step, sums[i]);
    }
  }
  constexpr int kFew = kLayerBatch / 2;
  if (sum.num_layers <= kFew) {
    for (; at + step < sum.num_elements; at += 2 * step) {
      float sums[2][kWidth];
      add_layers<In, kWidth, kFew>(sum.num_layers, address_of, at, sums[0]);
      add_layers<In, kWidth, kFew>(sum.num_layers, address_of, at + step, sums[1]);
      finish<Out>(sum, at, sums[0]);
      finish<Out>(sum, at + step, sums[1]);
    }
  }
  for (; at < sum.num_elements; at += step) {
    float sums[kWidth];
    add_layers<In, kWidth>(sum.num_layers, address_of, at, sums);
    finish<Out>(sum, at, sums);
  }
}

// What stands before this kernel in its stream has made the own layers; the release of the barrier covers it.
template <class In, class Out, int kWidth>
__global__ void __launch_bounds__(kLayerSumThreads, 1)
    layer_sum_kernel(const __grid_constant__ LayerSum sum, const __grid_constant__ SumBarriers barriers) {
  const bool ok = barriers.before.num_pieces == 0 || Exchange(barriers.before).meet();
  if (ok) add_up<In, Out, kWidth>(sum);
  barrier_at_end(barriers.at_end, ok);
}

using Kernel = void (*)(LayerSum, SumBarriers);

Kernel kernel_of(DType in, DType out, bool by_vectors) {
  return with_types(in, out, by_vectors,
                    []<class In, class Out, int kWidth>(Types<In, Out, kWidth>) -> Kernel {
                      return layer_sum_kernel<In, Out, kWidth>;
                    });
}

std::int64_t blocks_for(std::int64_t num_vectors) {
  return (num_vectors + kLayerSumThreads - 1) / kLayerSumThreads;
}

cudaError_t launch(const LayerSum& sum, const SumBarriers& barriers, std::int64_t num_blocks,
                   cudaStream_t stream) {
  if (num_blocks == 0) return cudaSuccess;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(num_blocks));
  config.blockDim = dim3(kLayerSumThreads);
  config.stream = stream;
  // Not <<<>>>: cudaGetLastError() would also return what an earlier query of this thread left.
  return cudaLaunchKernelEx(&config, kernel_of(sum.in_dtype, sum.out_dtype, sum.by_vectors), sum, barriers);
}

}  // namespace

cudaError_t launch_layer_sum(const LayerSum& sum, int max_blocks, cudaStream_t stream) {
  const std::int64_t width = sum.by_vectors ? vector_elements(sum.in_dtype) : 1;
  return launch(sum, {}, std::min<std::int64_t>(blocks_for(sum.num_elements / width), max_blocks), stream);
}

cudaError_t launch_layer_sum(const LayerSum& sum, const SumBarriers& barriers, std::int64_t largest_bytes,
                             int max_blocks, cudaStream_t stream) {
  const std::int64_t wanted = blocks_for((largest_bytes + kVectorBytes - 1) / kVectorBytes);
  const int most = barriers.before.num_pieces > 0 ? barriers.before.num_pieces : max_blocks;
  return launch(sum, barriers, std::min<std::int64_t>(wanted, most), stream);
}

tandem::cuda::KernelList layer_sum_kernels() {
  return sum_kernels(kernel_of);
}

}  // namespace tandem::coll::cuda
