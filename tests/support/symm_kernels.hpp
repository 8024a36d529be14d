#pragma once

#include <cstdint>
#include <tandem/bootstrap/group.hpp>
#include <tandem/device/stream.hpp>
#include <tandem/symm/kernel.hpp>

namespace tandem::testing {

// Communication kernels as a user writes them, for a stream of either backend: a task on a CPU's, a CUDA
// kernel on a GPU's.

/// Blocks 9 and 10 of all ranks meet many times. Between, each reads everybody's first word, which must be
/// the number of the round; at the end a signal goes round on channel 11. Counts what was wrong in
/// `num_wrong`, in memory of the device.
[[nodiscard]] Result<void> launch_meeting_rounds(Stream& stream, Group& group,
                                                 const symm::KernelHandle& handle, std::uint32_t* num_wrong);

/// A kernel that waits for a signal of `src`.
[[nodiscard]] Result<void> launch_wait(Stream& stream, Group& group, const symm::KernelHandle& handle,
                                       int src, int channel);

/// sync_blocks() with this number.
[[nodiscard]] Result<void> launch_sync_blocks(Stream& stream, Group& group, const symm::KernelHandle& handle,
                                              int block);

}  // namespace tandem::testing
