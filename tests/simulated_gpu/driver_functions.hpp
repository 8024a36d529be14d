#pragma once

namespace tandem::simulated {

/// The driver's function of this name; null if tandem does not call it.
[[nodiscard]] void* driver_function(const char* name);

}  // namespace tandem::simulated
