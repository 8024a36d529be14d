#include "device/cuda/sleep_kernel.hpp"

#include <tandem/cuda/device_words.cuh>

namespace tandem::cuda {
namespace {

__global__ void sleep_kernel(const std::int64_t duration_ns) {
  // The timer moves in ticks of up to a microsecond: counting begins with one, or the first would be short.
  const std::int64_t before = global_time_ns();
  std::int64_t begin = before;
  while (begin == before) begin = global_time_ns();
  for (;;) {
    const std::int64_t left = duration_ns - (global_time_ns() - begin);
    if (left <= 0) return;
    // It takes up to twice what it is asked for, and is asked for a millisecond at most.
    constexpr std::int64_t kLongestNs = 500'000;
    __nanosleep(static_cast<unsigned>(left / 2 < kLongestNs ? left / 2 : kLongestNs));
  }
}

}  // namespace

KernelList sleep_kernels() {
  KernelList list;
  add_kernels(list, sleep_kernel);
  return list;
}

cudaError_t launch_sleep(std::int64_t duration_ns, cudaStream_t stream) {
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(1);
  config.blockDim = dim3(1);
  config.stream = stream;
  return cudaLaunchKernelEx(&config, sleep_kernel, duration_ns);
}

}  // namespace tandem::cuda
