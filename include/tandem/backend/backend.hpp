#pragma once

#include <memory>
#include <string>
#include <tandem/base/config.hpp>
#include <tandem/base/error.hpp>
#include <tandem/base/tensor.hpp>
#include <tandem/device/device.hpp>
#include <vector>

namespace tandem {

/// Opens a device with all parts of its backend: streams, symmetric memory, products, collectives.
/// Errors:  kUnsupported if this build or this machine has no such device.
[[nodiscard]] Result<std::unique_ptr<Device>> open_device(DeviceId id, const Config& config);

/// The number of GPUs that open_device() can open. It is 0 in a build without CUDA, and on a machine without
/// a driver. The call starts the CUDA runtime in this process. A program that forks should ask in a child.
[[nodiscard]] int count_cuda_devices();
/// The names of the GPUs, by index.
/// Errors:  kUnsupported with the reason why there are none.
[[nodiscard]] Result<std::vector<std::string>> list_cuda_devices();

}  // namespace tandem
