#pragma once

#include <tandem/base/error.hpp>
#include <tandem/cost/machine_file.hpp>

#include "cost/machine.hpp"

namespace tandem::cost {

/// The rates of a machine as the models count with them.
/// Errors:  kInvalidArgument for a rate that is missing.
[[nodiscard]] Result<GpuRates> gpu_rates_of(const Machine& machine);

}  // namespace tandem::cost
