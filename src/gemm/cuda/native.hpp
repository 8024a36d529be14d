#pragma once

#include <memory>
#include <string_view>
#include <tandem/device/device.hpp>

#include "device/cuda/kernel_list.hpp"
#include "gemm/backend.hpp"

namespace tandem::gemm::cuda {

// The native kernels as the rest of the backend sees them: sm90/, or without_native.cpp in a build that has
// no CUTLASS.

/// Products that consume their left operand while it arrives. They say why not where there are none.
[[nodiscard]] std::unique_ptr<Implementation> make_native_products(const Device& device);

[[nodiscard]] tandem::cuda::KernelList native_kernels();
/// "bf16 t 128x256 2x1"; empty for other kernels.
[[nodiscard]] std::string_view native_name_of(const void* kernel);

}  // namespace tandem::gemm::cuda
