#include "gemm/cuda/sm90/async_input_instance.cuh"
#include "gemm/cuda/sm90/instances.hpp"

tandem::gemm::cuda::AsyncInputKernel tandem::gemm::cuda::bf16_t_208_2x1() {
  using Instance = AsyncInputInstance<cutlass::bfloat16_t, true, 208, 2, 1>;
  return async_input_kernel<Instance>("bf16 t 128x208 2x1", DType::kBF16, true);
}
