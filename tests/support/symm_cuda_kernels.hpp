#pragma once

// Included by .cu files: plain data only.

#include <cuda_runtime_api.h>

#include <cstdint>
#include <tandem/symm/kernel.hpp>

namespace tandem::testing {

[[nodiscard]] cudaError_t launch_meeting_rounds_kernel(const symm::KernelHandle& handle, int num_rounds,
                                                       std::uint32_t* num_wrong, cudaStream_t stream);
[[nodiscard]] cudaError_t launch_wait_kernel(const symm::KernelHandle& handle, int src, int channel,
                                             cudaStream_t stream);
[[nodiscard]] cudaError_t launch_sync_blocks_kernel(const symm::KernelHandle& handle, int block,
                                                    cudaStream_t stream);

}  // namespace tandem::testing
