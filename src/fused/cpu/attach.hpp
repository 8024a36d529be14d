#pragma once

#include <tandem/device/device.hpp>

namespace tandem::fused {

/// Gives a CPU device what measures its cores.
void attach_cpu(Device& device);

}  // namespace tandem::fused
