#pragma once

#include <span>
#include <tandem/base/error.hpp>
#include <vector>

#include "program/program.hpp"

namespace tandem::program {

/// Runs the programs of all ranks of one call, by rank, in the mind: lanes advance as barriers, joins and
/// words allow. What the callers do before and behind the call uses all of their memory. Programs that use
/// the inbox run three times in a row.
/// Errors: kInternal, with the step and the rank, where
///   - two steps that are not ordered use the same memory, and one of them writes it, on one rank or on two;
///   - a step does not wait for the caller's lane, or the caller's lane not for a step or for a lane;
///   - scratch memory, workspace or inbox is read that the call has not written, or used beyond MemoryNeeds;
///   - a barrier is not met by every rank, on the same lane, or two of one channel are not ordered;
///   - a word is awaited that nobody writes;
///   - a step names a lane, rank or part that does not exist, or what ranks need alike is not alike.
[[nodiscard]] Result<void> verify(std::span<const Program> ranks);

/// The part of verify() that runs nothing: every step has its lanes, peer and product, operands lie inside
/// their roots and roots inside what is reserved, every lane is joined in the end, and all ranks pass the
/// same barriers and collectives on the same lanes.
[[nodiscard]] Result<void> check_form(std::span<const Program> ranks);

/// How far every lane has come, as far as one of them knows: a vector clock.
using Clock = std::vector<int>;
void merge(Clock& into, const Clock& other);

}  // namespace tandem::program
