#pragma once

#include <span>
#include <tandem/base/error.hpp>

#include "program/program.hpp"

namespace tandem::program {

/// Runs the programs of all ranks of one call in the mind: lanes advance as barriers, joins and words allow.
/// Errors: kInternal, with the step and the rank, where
///   - two steps that are not ordered use the same memory, and one of them writes it, on one rank or on two;
///   - a barrier is not met by every rank, on the same lane, or a word is awaited that nobody writes;
///   - a lane's work is not joined to the caller's lane in the end.
[[nodiscard]] Result<void> verify(std::span<const Program> ranks);

}  // namespace tandem::program
