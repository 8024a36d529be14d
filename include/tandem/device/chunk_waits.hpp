#pragma once

// What kernels note of their waits for a timeline. It is plain data for device and host code. Users do not
// need it.

#include <cstdint>

namespace tandem {

/// One wait of a kernel for a chunk of its operand. While a kernel runs: in ticks of the device's own clock.
/// Behind Stamps::read(): in ns of the host's CLOCK_MONOTONIC.
struct ChunkWait {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  /// Of a product whose rows go to their owners: the rank that sends partials. -1: for several at once.
  std::int32_t chunk = 0;
  std::int32_t tag = 0;  ///< of its ChunkWaitLog
};

/// Where a kernel notes its waits, in memory of the device: it takes place `(*count)++`, atomically, and
/// writes there if that is below the capacity. Only waits are noted whose first look found no chunk.
struct ChunkWaitLog {
  ChunkWait* waits = nullptr;  ///< [capacity]; null: nothing is noted
  std::uint32_t* count = nullptr;
  std::uint32_t capacity = 0;
  std::int32_t tag = 0;  ///< whose waits they are

  [[nodiscard]] constexpr explicit operator bool() const { return waits != nullptr; }
};

}  // namespace tandem
