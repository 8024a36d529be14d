#include "all_reduce_kernel.hpp"

#include <tandem/symm/kernel_device.cuh>

namespace {

using tandem::symm::KernelHandle;
using tandem::symm::PutOrder;
using tandem::symm::WaitOrder;

// As many blocks on every rank, and few enough to run at the same time: block b meets block b of the others.
constexpr int kNumBlocks = 8;
constexpr int kNumThreads = 256;

__global__ void all_reduce(const KernelHandle handle, const int first_channel, float* const out,
                           const std::int64_t count) {
  const int channel = first_channel + static_cast<int>(blockIdx.x);
  // Everybody's input is written, by whatever came before on their streams.
  if (!sync_blocks(handle, channel, PutOrder::kRelease, WaitOrder::kAcquire)) return;
  const std::int64_t first = blockIdx.x * blockDim.x + threadIdx.x;
  for (std::int64_t i = first; i < count; i += gridDim.x * blockDim.x) {
    float sum = 0;
    for (int q = 0; q < handle.world_size; ++q) sum += static_cast<const float*>(handle.buffers[q])[i];
    out[i] = sum;
  }
  // Everybody has read: from here on the inputs may be overwritten. This block has read what is its own, and
  // so has its counterpart on every rank; the kernel ends with its last block.
  static_cast<void>(sync_blocks(handle, channel, PutOrder::kRelease, WaitOrder::kAcquire));
}

}  // namespace

cudaError_t load_all_reduce() {
  cudaFuncAttributes attributes{};
  return cudaFuncGetAttributes(&attributes, all_reduce);
}

cudaError_t launch_all_reduce(const KernelHandle& handle, int first_channel, float* out, std::int64_t count,
                              cudaStream_t stream) {
  all_reduce<<<kNumBlocks, kNumThreads, 0, stream>>>(handle, first_channel, out, count);
  return cudaGetLastError();
}
