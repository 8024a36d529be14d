#pragma once

#include <cstdint>
#include <ctime>

namespace tandem {

/// The host's CLOCK_MONOTONIC in ns, in which stamps are told. All processes of the host share it.
[[nodiscard]] inline std::int64_t host_now_ns() {
  constexpr std::int64_t kNsPerS = 1'000'000'000;
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * kNsPerS + now.tv_nsec;
}

}  // namespace tandem
