#pragma once

#include <tandem/device/device.hpp>

namespace tandem::coll {

/// Gives a CPU device the kernels of the collectives.
void attach_cpu(Device& device);

}  // namespace tandem::coll
