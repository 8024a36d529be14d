#pragma once

#include <span>
#include <tandem/base/core_rates.hpp>
#include <tandem/base/error.hpp>
#include <tandem/device/device.hpp>

namespace tandem::fused {

/// Measures the cores of a CPU device; a service of Device.
class CoreMeter {
 public:
  virtual ~CoreMeter() = default;
  /// What one core does while `busy_cores` of them do the same, by the library's own products, copies and
  /// sums, in about 6 ms a type of products and 3 for copies and for sums; where a core is slow, as with
  /// scalar kernels, in some 50 a type. The time that threads work counts, the median of several
  /// rounds: other programs, and ranks that share the cores, show little. A packing or a product speed comes
  /// with the other. Blocks. Errors: those of the device's memory, streams and products.
  [[nodiscard]] virtual Result<CoreRates> measure(std::span<const CoreRate> wanted, int busy_cores,
                                                  Device& device) const = 0;
};

}  // namespace tandem::fused
