#include "support/symm_cuda_kernels.hpp"

#include <tandem/symm/kernel_device.cuh>

namespace tandem::testing {
namespace {

using symm::KernelHandle;
using symm::PutOrder;
using symm::WaitOrder;

constexpr int kNumThreads = 64;

__global__ void meeting_rounds_kernel(const KernelHandle handle, const int num_rounds,
                                      std::uint32_t* const num_wrong) {
  const int thread = static_cast<int>(threadIdx.x);
  auto* const mine = static_cast<std::uint32_t*>(handle.buffers[handle.rank]);
  for (int round = 1; round <= num_rounds; ++round) {
    if (thread == kNumThreads - 1) *mine = static_cast<std::uint32_t>(round);
    if (!symm::sync_blocks(handle, 9, PutOrder::kRelease, WaitOrder::kAcquire)) return;
    if (thread < handle.world_size) {
      const auto* const theirs = static_cast<const std::uint32_t*>(handle.buffers[thread]);
      if (*theirs != static_cast<std::uint32_t>(round)) atomicAdd(num_wrong, 1U);
    }
    if (!symm::sync_blocks(handle, 10, PutOrder::kRelease, WaitOrder::kAcquire)) return;
  }
  if (thread != 0) return;
  const int next = (handle.rank + 1) % handle.world_size;
  const int previous = (handle.rank + handle.world_size - 1) % handle.world_size;
  if (!symm::put_signal(handle, next, 11) || !symm::wait_signal(handle, previous, 11)) {
    atomicAdd(num_wrong, 1U);
  }
}

__global__ void wait_kernel(const KernelHandle handle, const int src, const int channel) {
  static_cast<void>(symm::wait_signal(handle, src, channel));
}

__global__ void sync_blocks_kernel(const KernelHandle handle, const int block) {
  static_cast<void>(symm::sync_blocks(handle, block, PutOrder::kRelease, WaitOrder::kAcquire));
}

// A first launch that had to load its kernel would wait for kernels that wait: all at once, before any runs.
cudaError_t load_all() {
  cudaFuncAttributes attributes{};
  cudaError_t code = cudaFuncGetAttributes(&attributes, meeting_rounds_kernel);
  if (code == cudaSuccess) code = cudaFuncGetAttributes(&attributes, wait_kernel);
  if (code == cudaSuccess) code = cudaFuncGetAttributes(&attributes, sync_blocks_kernel);
  return code;
}

template <class... Parameters, class... Arguments>
cudaError_t launch(void (*kernel)(Parameters...), cudaStream_t stream, Arguments... arguments) {
  if (const cudaError_t code = load_all(); code != cudaSuccess) return code;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(1);
  config.blockDim = dim3(kNumThreads);
  config.stream = stream;
  return cudaLaunchKernelEx(&config, kernel, arguments...);
}

}  // namespace

cudaError_t launch_meeting_rounds_kernel(const KernelHandle& handle, int num_rounds, std::uint32_t* num_wrong,
                                         cudaStream_t stream) {
  return launch(meeting_rounds_kernel, stream, handle, num_rounds, num_wrong);
}

cudaError_t launch_wait_kernel(const KernelHandle& handle, int src, int channel, cudaStream_t stream) {
  return launch(wait_kernel, stream, handle, src, channel);
}

cudaError_t launch_sync_blocks_kernel(const KernelHandle& handle, int block, cudaStream_t stream) {
  return launch(sync_blocks_kernel, stream, handle, block);
}

}  // namespace tandem::testing
