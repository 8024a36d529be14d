#include "gemm/cuda/sm90/async_input_instance.cuh"
#include "gemm/cuda/sm90/instances.hpp"

tandem::gemm::cuda::AsyncInputKernel tandem::gemm::cuda::f16_t_256_1x1() {
  using Instance = AsyncInputInstance<cutlass::half_t, true, 256, 1, 1>;
  return async_input_kernel<Instance>("f16 t 128x256 1x1", DType::kF16, true);
}
