#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include "mlp_activation_cuda.hpp"

namespace tandem::cli::cuda {
namespace {

__global__ void silu_mul(const __nv_bfloat16* gate, const __nv_bfloat16* up, __nv_bfloat16* activated,
                         std::int64_t count) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  for (std::int64_t i = first; i < count; i += step) {
    const float g = __bfloat162float(gate[i]);
    activated[i] = __float2bfloat16_rn(g / (1.0F + expf(-g)) * __bfloat162float(up[i]));
  }
}

}  // namespace

int launch_silu_mul(const void* gate, const void* up, void* activated, std::int64_t count,
                    CUstream_st* stream) {
  constexpr int kThreads = 256;
  constexpr int kBlocks = 1056;  // eight on each of 132 multiprocessors
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(kBlocks);
  config.blockDim = dim3(kThreads);
  config.stream = stream;
  return cudaLaunchKernelEx(&config, silu_mul, static_cast<const __nv_bfloat16*>(gate),
                            static_cast<const __nv_bfloat16*>(up), static_cast<__nv_bfloat16*>(activated),
                            count);
}

int load_silu_mul() {
  cudaFuncAttributes attributes{};
  return cudaFuncGetAttributes(&attributes, silu_mul);
}

}  // namespace tandem::cli::cuda
