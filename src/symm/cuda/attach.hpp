#pragma once

#include <tandem/base/error.hpp>
#include <tandem/device/device.hpp>

#include "device/cuda/kernel_list.hpp"

namespace tandem::symm {

/// Gives a CUDA device its symmetric memory.
[[nodiscard]] Result<void> attach_cuda(Device& device);

namespace cuda {
[[nodiscard]] tandem::cuda::KernelList kernels();
}

}  // namespace tandem::symm
