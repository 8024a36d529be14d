#include "gemm/cuda/sm90/instance_list.cuh"
#include "gemm/cuda/sm90/instances.hpp"
#include "gemm/cuda/sm90/plain_sums.cuh"

std::span<const tandem::gemm::cuda::AsyncInputKernel> tandem::gemm::cuda::bf16_t() {
  using What = Multiplied<cutlass::bfloat16_t, cutlass::bfloat16_t, true, PlainSums>;
  static const auto all = list_of<What>(ColumnMajorTiles{}, "bf16 t", DType::kBF16, DType::kBF16);
  return all;
}
