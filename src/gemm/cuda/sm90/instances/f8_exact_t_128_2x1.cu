#include "gemm/cuda/sm90/async_input_instance.cuh"
#include "gemm/cuda/sm90/instances.hpp"

tandem::gemm::cuda::AsyncInputKernel tandem::gemm::cuda::f8_exact_t_128_2x1() {
  using What = Multiplied<cutlass::float_e4m3_t, cutlass::bfloat16_t, true, SumsKind::kPromoted>;
  return async_input_kernel<What, 128, 2, 1>("f8e4m3 exact t 128x128 2x1", DType::kF8E4M3, DType::kBF16);
}
