#pragma once

#include <memory>
#include <tandem/base/config.hpp>
#include <tandem/base/error.hpp>
#include <tandem/device/device.hpp>

namespace tandem::cpu {

/// The cores and the memory of this host, without the services of higher modules. There is one: index 0.
/// Errors: kUnsupported for another index.
[[nodiscard]] Result<std::unique_ptr<Device>> make_device(int index, const Config& config);

}  // namespace tandem::cpu
