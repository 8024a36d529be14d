#pragma once

#include <tandem/base/error.hpp>
#include <tandem/device/device.hpp>

#include "device/cuda/kernel_list.hpp"

namespace tandem::coll {

/// Gives a CUDA device the kernels of the collectives, and loads them.
[[nodiscard]] Result<void> attach_cuda(Device& device);

namespace cuda {
[[nodiscard]] tandem::cuda::KernelList kernels();
}

}  // namespace tandem::coll
