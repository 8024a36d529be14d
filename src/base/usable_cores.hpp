#pragma once

#include <array>
#include <cstdint>

namespace tandem {

/// Cores this process may use: those it may be scheduled on, less where a cgroup (v2) grants less time. At
/// least 1.
[[nodiscard]] int usable_cores();

/// Processors by their numbers, a bit each.
struct CoreSet {
  std::array<std::uint64_t, 16> words{};
  [[nodiscard]] int count() const;
};
/// Those that the calling thread may run on; none where the system has more than 1024.
[[nodiscard]] CoreSet own_cores();
/// As many as the limits of its control groups grant this process; the largest int where there is none.
[[nodiscard]] int granted_cores();

}  // namespace tandem
