#pragma once

namespace tandem {

/// Cores this process may use: those it may be scheduled on, less where a cgroup (v2) grants less time. At
/// least 1.
[[nodiscard]] int usable_cores();

}  // namespace tandem
