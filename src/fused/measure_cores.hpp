#pragma once

#include <span>
#include <tandem/base/core_rates.hpp>
#include <tandem/base/error.hpp>
#include <tandem/device/device.hpp>

namespace tandem::fused {

/// What one core of a CPU device does while `busy_cores` of them do the same, by the library's own products,
/// copies and sums, in about 3 ms a type and 1 ms for copies; where a core is slow, as with scalar kernels,
/// in about 10 a type. It counts the time that the cores worked for it: other programs, and ranks that share
/// the cores, take longer and change nothing else. A packing or a product speed comes with the other.
/// Blocks. Errors: those of the device's memory, streams and products.
[[nodiscard]] Result<CoreRates> measure_cores(std::span<const CoreRate> wanted, int busy_cores,
                                              Device& device);

}  // namespace tandem::fused
