#pragma once

#include <cstdint>

namespace tandem::coll::cuda {

/// What a thread loads at once where addresses and sizes are multiples of it.
inline constexpr std::int64_t kVectorBytes = 16;

[[nodiscard]] inline bool is_aligned(const void* address, std::int64_t num_bytes = kVectorBytes) {
  return reinterpret_cast<std::uintptr_t>(address) % static_cast<std::uintptr_t>(num_bytes) == 0;
}

}  // namespace tandem::coll::cuda
