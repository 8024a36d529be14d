#pragma once

#include <tandem/base/error.hpp>
#include <tandem/device/device.hpp>

#include "device/cuda/kernel_list.hpp"

namespace tandem::gemm {

/// Gives a CUDA device its products: cuBLASLt where it can be loaded, and a plain kernel for the rest. Loads
/// tandem's own kernels; cuBLASLt's are loaded by prepare().
[[nodiscard]] Result<void> attach_cuda(Device& device);

namespace cuda {
/// tandem's own.
[[nodiscard]] tandem::cuda::KernelList kernels();
}  // namespace cuda

}  // namespace tandem::gemm
