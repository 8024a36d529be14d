#pragma once

#include <memory>
#include <tandem/base/config.hpp>
#include <tandem/base/error.hpp>
#include <tandem/base/tensor.hpp>
#include <tandem/device/device.hpp>

namespace tandem {

/// Opens a device and attaches every part of its backend: streams, symmetric memory, products, collectives.
/// The one place that knows which backends exist.
/// Errors: kUnsupported when this build or this machine has no such device.
[[nodiscard]] Result<std::unique_ptr<Device>> open_device(DeviceId id, const Config& config);

}  // namespace tandem
