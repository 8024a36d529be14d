#pragma once

#include <string>
#include <tandem/base/error.hpp>
#include <vector>

namespace tandem::cuda {

/// Names of the GPUs of this machine, by index; makes no context. Errors: kUnsupported with the driver's text
/// when there is no driver or no GPU.
[[nodiscard]] Result<std::vector<std::string>> device_names();

}  // namespace tandem::cuda
