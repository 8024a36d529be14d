#pragma once

#include <span>
#include <string_view>

namespace tandem::cost {

/// A file of machines/, compiled in: `tandem plan` needs nothing beside itself.
struct BuiltInMachine {
  std::string_view name;  ///< "h200"
  std::string_view text;
};
[[nodiscard]] std::span<const BuiltInMachine> built_in_machines();

}  // namespace tandem::cost
