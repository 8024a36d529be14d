#pragma once

#include <tandem/base/error.hpp>
#include <tandem/device/device.hpp>

namespace tandem::symm {

/// Gives a CUDA device its symmetric memory.
[[nodiscard]] Result<void> attach_cuda(Device& device);

}  // namespace tandem::symm
