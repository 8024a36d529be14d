#pragma once

// Included by .cu files.

#include <cuda_runtime_api.h>

#include <cstdint>

#include "device/cuda/kernel_list.hpp"

namespace tandem::cuda {

[[nodiscard]] KernelList sleep_kernels();
/// Keeps the stream busy for at least this long, with one thread.
[[nodiscard]] cudaError_t launch_sleep(std::int64_t duration_ns, cudaStream_t stream);

}  // namespace tandem::cuda
