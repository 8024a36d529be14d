#include "gemm/cuda/sm90/async_input_instance.cuh"
#include "gemm/cuda/sm90/instances.hpp"

tandem::gemm::cuda::AsyncInputKernel tandem::gemm::cuda::bf16_t_112_2x1() {
  using Instance = AsyncInputInstance<cutlass::bfloat16_t, true, 112, 2, 1>;
  return async_input_kernel<Instance>("bf16 t 128x112 2x1", DType::kBF16, true);
}
