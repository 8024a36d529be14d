#include "gemm/cuda/sm90/instances.hpp"

#include <vector>

namespace tandem::gemm::cuda {

std::span<const AsyncInputKernel> async_input_kernels() {
  static const std::vector<AsyncInputKernel> all = [] {
    std::vector<AsyncInputKernel> kernels;
    for (const auto list : {bf16_t(), bf16_n(), f16_t(), f16_n(), f8_t(), f8_exact_t()})
      kernels.insert(kernels.end(), list.begin(), list.end());
    return kernels;
  }();
  return all;
}

}  // namespace tandem::gemm::cuda
