#include "gemm/cuda/sm90/async_input_instance.cuh"
#include "gemm/cuda/sm90/instances.hpp"
#include "gemm/cuda/sm90/plain_sums.cuh"

tandem::gemm::cuda::AsyncInputKernel tandem::gemm::cuda::bf16_t_64_1x2() {
  using What = Multiplied<cutlass::bfloat16_t, cutlass::bfloat16_t, true, PlainSums>;
  return async_input_kernel<What, 64, 1, 2>("bf16 t 128x64 1x2", DType::kBF16, DType::kBF16);
}
