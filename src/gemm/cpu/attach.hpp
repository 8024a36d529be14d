#pragma once

#include <tandem/device/device.hpp>

namespace tandem::gemm {

/// Gives a CPU device its products: the tile kernel for AVX-512, AVX2 and any other x86, in this order.
/// Where the device's Config::isa names one of them, the others refuse.
void attach_cpu(Device& device);

}  // namespace tandem::gemm
