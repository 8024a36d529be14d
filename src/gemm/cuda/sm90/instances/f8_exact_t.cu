#include "gemm/cuda/sm90/instance_list.cuh"
#include "gemm/cuda/sm90/instances.hpp"
#include "gemm/cuda/sm90/promoted_sums.cuh"

std::span<const tandem::gemm::cuda::AsyncInputKernel> tandem::gemm::cuda::f8_exact_t() {
  using What = Multiplied<cutlass::float_e4m3_t, cutlass::bfloat16_t, true, PromotedSums>;
  static const auto all = list_of<What>(PromotedTiles{}, "f8e4m3 exact t", DType::kF8E4M3, DType::kBF16);
  return all;
}
