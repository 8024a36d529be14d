#pragma once

#include <memory>
#include <string>
#include <tandem/base/config.hpp>
#include <tandem/base/error.hpp>
#include <tandem/base/tensor.hpp>
#include <tandem/device/device.hpp>
#include <vector>

namespace tandem {

/// Opens a device and attaches every part of its backend: streams, symmetric memory, products, collectives.
/// The one place that knows which backends exist.
/// Errors: kUnsupported when this build or this machine has no such device.
[[nodiscard]] Result<std::unique_ptr<Device>> open_device(DeviceId id, const Config& config);

/// GPUs that open_device() can open: 0 in a build without them, and on a machine without a driver. Starts the
/// CUDA runtime in this process, so a program that makes other processes asks in a child.
[[nodiscard]] int count_cuda_devices();
/// Their names, by index. Errors: kUnsupported saying why there are none.
[[nodiscard]] Result<std::vector<std::string>> list_cuda_devices();

}  // namespace tandem
