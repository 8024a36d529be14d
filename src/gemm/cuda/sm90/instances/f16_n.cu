#include "gemm/cuda/sm90/instance_list.cuh"
#include "gemm/cuda/sm90/instances.hpp"
#include "gemm/cuda/sm90/plain_sums.cuh"

std::span<const tandem::gemm::cuda::AsyncInputKernel> tandem::gemm::cuda::f16_n() {
  using What = Multiplied<cutlass::half_t, cutlass::half_t, false, PlainSums>;
  static const auto all = list_of<What>(AnyChunkTiles{}, "f16 n", DType::kF16, DType::kF16);
  return all;
}
