#pragma once

#include <tandem/device/device.hpp>

namespace tandem::symm {

/// Gives a CPU device its symmetric memory.
void attach_cpu(Device& device);

}  // namespace tandem::symm
