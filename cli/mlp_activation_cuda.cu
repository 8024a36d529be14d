#include <cuda_bf16.h>
#include <cuda_fp8.h>
#include <cuda_runtime_api.h>

#include "mlp_activation_cuda.hpp"

namespace tandem::cli::cuda {
namespace {

// Out's constructor rounds to nearest even, and that of f8 saturates.
template <class Out>
__global__ void silu_mul(const __nv_bfloat16* gate, const __nv_bfloat16* up, Out* activated, float scale,
                         std::int64_t count) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  for (std::int64_t i = first; i < count; i += step) {
    const float g = __bfloat162float(gate[i]);
    activated[i] = Out(g / (1.0F + expf(-g)) * __bfloat162float(up[i]) / scale);
  }
}

template <class Out>
cudaError_t launch(const SiluMul& what, CUstream_st* stream) {
  constexpr int kThreads = 256;
  constexpr int kBlocks = 1056;  // eight on each of 132 multiprocessors
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(kBlocks);
  config.blockDim = dim3(kThreads);
  config.stream = stream;
  return cudaLaunchKernelEx(&config, silu_mul<Out>, static_cast<const __nv_bfloat16*>(what.gate),
                            static_cast<const __nv_bfloat16*>(what.up), static_cast<Out*>(what.activated),
                            what.scale, what.count);
}

}  // namespace

int launch_silu_mul(const SiluMul& what, CUstream_st* stream) {
  return what.is_f8 ? launch<__nv_fp8_e4m3>(what, stream) : launch<__nv_bfloat16>(what, stream);
}

int load_silu_mul() {
  cudaFuncAttributes attributes{};
  const cudaError_t loaded = cudaFuncGetAttributes(&attributes, silu_mul<__nv_bfloat16>);
  return loaded == cudaSuccess ? cudaFuncGetAttributes(&attributes, silu_mul<__nv_fp8_e4m3>) : loaded;
}

}  // namespace tandem::cli::cuda
