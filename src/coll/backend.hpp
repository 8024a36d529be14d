#pragma once

#include <string_view>
#include <tandem/base/error.hpp>
#include <tandem/coll/collectives.hpp>
#include <tandem/device/stream.hpp>

namespace tandem::coll {

/// The kernels of the collectives on one kind of device, a service of Device.
class Backend {
 public:
  static constexpr std::string_view kServiceName = "coll";
  virtual ~Backend() = default;
  /// Enqueues. `args` are checked, and there is at least one element.
  [[nodiscard]] virtual Result<void> reduce_stack(const ReduceStackArgs& args, Stream& stream) = 0;
};

}  // namespace tandem::coll
