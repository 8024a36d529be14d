#pragma once

#include <string>
#include <tandem/device/device.hpp>

#include "base/function_ref.hpp"
#include "gemm/backend.hpp"

namespace tandem::gemm {

/// Whether an implementation takes the problem at hand; the reason if not goes to `why_not` unless that is
/// null.
using Accepts = FunctionRef<bool(const Implementation& implementation, std::string* why_not)>;

/// The first implementation of the device that accepts, or null; then `reasons`, if given, has each one's.
[[nodiscard]] const Implementation* choose(const Device& device, Accepts accepts, std::string* reasons);

}  // namespace tandem::gemm
