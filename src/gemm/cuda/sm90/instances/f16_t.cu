#include "gemm/cuda/sm90/instance_list.cuh"
#include "gemm/cuda/sm90/instances.hpp"
#include "gemm/cuda/sm90/plain_sums.cuh"

std::span<const tandem::gemm::cuda::AsyncInputKernel> tandem::gemm::cuda::f16_t() {
  using What = Multiplied<cutlass::half_t, cutlass::half_t, true, PlainSums>;
  static const auto all = list_of<What>(AnyChunkTiles{}, "f16 t", DType::kF16, DType::kF16);
  return all;
}
