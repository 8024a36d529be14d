#include "gemm/cuda/sm90/async_input_instance.cuh"
#include "gemm/cuda/sm90/instances.hpp"

tandem::gemm::cuda::AsyncInputKernel tandem::gemm::cuda::f16_n_256_1x1() {
  using Instance = AsyncInputInstance<cutlass::half_t, false, 256, 1, 1>;
  return async_input_kernel<Instance>("f16 n 128x256 1x1", DType::kF16, false);
}
