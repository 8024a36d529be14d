#include "support/symm_gpu_kernels.hpp"

#include <tandem/cuda/native_stream.hpp>
#include <tandem/device/device.hpp>

#include "support/symm_cuda_kernels.hpp"

namespace tandem::testing {
namespace {

template <class Launch>
Result<void> launch_on(Stream& stream, Launch launch) {
  const auto native = cuda::native_stream(stream);
  if (!native) return tl::unexpected(native.error());
  cudaError_t code = cudaSetDevice(stream.device().id().index);
  if (code == cudaSuccess) code = launch(*native);
  if (code != cudaSuccess) return fail(ErrorCode::kDriver, cudaGetErrorString(code), code);
  return {};
}

}  // namespace

Result<void> launch_meeting_rounds_on_gpu(Stream& stream, const symm::KernelHandle& handle, int num_rounds,
                                          std::uint32_t* num_wrong) {
  return launch_on(stream, [&](cudaStream_t native) {
    return launch_meeting_rounds_kernel(handle, num_rounds, num_wrong, native);
  });
}

Result<void> launch_wait_on_gpu(Stream& stream, const symm::KernelHandle& handle, int src, int channel) {
  return launch_on(stream,
                   [&](cudaStream_t native) { return launch_wait_kernel(handle, src, channel, native); });
}

Result<void> launch_sync_blocks_on_gpu(Stream& stream, const symm::KernelHandle& handle, int block) {
  return launch_on(stream,
                   [&](cudaStream_t native) { return launch_sync_blocks_kernel(handle, block, native); });
}

}  // namespace tandem::testing
