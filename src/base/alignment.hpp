#pragma once

#include <cstdint>

namespace tandem {

/// More than any product can make use of.
inline constexpr std::uintptr_t kMostAlignment = 128;

/// The biggest power of two that an address is a multiple of, up to kMostAlignment: that of null, too, which
/// stands for memory that is not there yet.
[[nodiscard]] inline int alignment_of(const void* address) {
  const std::uintptr_t bits = reinterpret_cast<std::uintptr_t>(address) | kMostAlignment;
  return static_cast<int>(bits & (~bits + 1));
}

/// The smallest multiple of `alignment`, at least 1, that is not below `num_bytes`, at least 0.
[[nodiscard]] constexpr std::int64_t aligned(std::int64_t num_bytes, std::int64_t alignment) {
  return (num_bytes + alignment - 1) / alignment * alignment;
}

}  // namespace tandem
