#include "gemm/cuda/sm90/async_input_instance.cuh"
#include "gemm/cuda/sm90/instances.hpp"
#include "gemm/cuda/sm90/plain_sums.cuh"

tandem::gemm::cuda::AsyncInputKernel tandem::gemm::cuda::f16_n_256_1x1() {
  using What = Multiplied<cutlass::half_t, cutlass::half_t, false, PlainSums>;
  return async_input_kernel<What, 256, 1, 1>("f16 n 128x256 1x1", DType::kF16, DType::kF16);
}
