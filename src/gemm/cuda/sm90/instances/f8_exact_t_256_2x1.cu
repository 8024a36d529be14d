#include "gemm/cuda/sm90/async_input_instance.cuh"
#include "gemm/cuda/sm90/instances.hpp"
#include "gemm/cuda/sm90/promoted_sums.cuh"

tandem::gemm::cuda::AsyncInputKernel tandem::gemm::cuda::f8_exact_t_256_2x1() {
  using What = Multiplied<cutlass::float_e4m3_t, cutlass::bfloat16_t, true, PromotedSums>;
  return async_input_kernel<What, 256, 2, 1>("f8e4m3 exact t 128x256 2x1", DType::kF8E4M3, DType::kBF16);
}
