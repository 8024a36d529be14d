#pragma once

#include <memory>
#include <tandem/base/error.hpp>
#include <tandem/symm/kernel_control.hpp>

#include "bootstrap/control_memory.hpp"

namespace tandem::symm::cuda {

/// Where kernels of `rank` on GPU `device` find the words of `memory` that their waits look at and write:
/// fills the pointers to the group's error, to who has left, to whom the rank waits for and to its record.
/// The memory is registered with CUDA at the first call of the process and stays so until it is unmapped;
/// whoever keeps the pointers keeps `memory`.
[[nodiscard]] Result<void> view_control(bootstrap::ControlMemory& memory, int rank, int device,
                                        KernelControl& control);

}  // namespace tandem::symm::cuda
