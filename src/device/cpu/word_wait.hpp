#pragma once

#include <cstdint>
#include <tandem/base/deadline.hpp>
#include <tandem/base/error.hpp>

namespace tandem::cpu {

// A word that one side writes and the other waits for, in one process or two.

/// Writes the word, released, and wakes whoever sleeps on it. Errors: kDriver when the system wakes nobody;
/// the word is written then.
[[nodiscard]] Result<void> write_word(std::uint32_t* word, std::uint32_t value);

/// The word, acquired: what its writer did before it wrote what is read here is visible.
[[nodiscard]] std::uint32_t acquire_word(const std::uint32_t* word);

/// Whether `seen` is at or behind `expected`, on a circle: numbers may wrap around.
[[nodiscard]] constexpr bool has_reached(std::uint32_t seen, std::uint32_t expected) {
  return static_cast<std::int32_t>(seen - expected) >= 0;
}

/// Sleeps on the word until it has reached `expected`. A writer that wakes nobody is noticed within a
/// millisecond. Returns what it saw last, acquired: not reached if the deadline came first. Errors: kDriver
/// when the system lets nobody sleep there.
[[nodiscard]] Result<std::uint32_t> await_word(const std::uint32_t* word, std::uint32_t expected,
                                               Deadline deadline);

}  // namespace tandem::cpu
