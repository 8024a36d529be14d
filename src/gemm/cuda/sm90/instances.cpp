#include "gemm/cuda/sm90/instances.hpp"

#include <array>

namespace tandem::gemm::cuda {

std::span<const AsyncInputKernel> async_input_kernels() {
  static const std::array all = {
      bf16_t_256_2x1(),     bf16_t_224_2x1(),    bf16_t_208_2x1(), bf16_t_112_2x1(), bf16_t_128_1x1(),
      bf16_t_64_1x4(),      bf16_t_64_1x2(),     bf16_t_64_1x1(),  bf16_n_256_1x1(), f16_t_256_1x1(),
      f16_n_256_1x1(),      f8_t_256_2x1(),      f8_t_224_2x1(),   f8_t_112_2x1(),   f8_t_128_1x1(),
      f8_exact_t_256_2x1(), f8_exact_t_128_1x1()};
  return all;
}

}  // namespace tandem::gemm::cuda
