#pragma once

#include <cstdint>
#include <tandem/device/stream.hpp>
#include <tandem/symm/kernel.hpp>

namespace tandem::testing {

// What symm_kernels.hpp does for a GPU's stream. Two files implement it: one where there are CUDA kernels,
// one that refuses in a build without.

[[nodiscard]] Result<void> launch_meeting_rounds_on_gpu(Stream& stream, const symm::KernelHandle& handle,
                                                        int num_rounds, std::uint32_t* num_wrong);
[[nodiscard]] Result<void> launch_wait_on_gpu(Stream& stream, const symm::KernelHandle& handle, int src,
                                              int channel);
[[nodiscard]] Result<void> launch_sync_blocks_on_gpu(Stream& stream, const symm::KernelHandle& handle,
                                                     int block);

}  // namespace tandem::testing
