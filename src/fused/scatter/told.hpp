#pragma once

#include <tandem/base/support.hpp>

#include "fused/scatter/algorithms.hpp"

namespace tandem::fused {

// The form of a scatter in which no rank waits for all others at once, for ranks that share cores. The
// partials for all ranks have each a place of their own in the inbox of the rank that makes them. It tells an
// owner when it has made them, and the owner adds all ranks' partials where they lie, in rank order. See
// docs/design/schedules.md.

/// Whether a scatter, or an all-reduce, is of this form where it is `native`: on CPUs. The same on every
/// rank.
[[nodiscard]] Support can_tell(const ScatterProblem& problem);

/// Of a problem that tells.
[[nodiscard]] ScatterProgram build_told_scatter(const ScatterProblem& problem, Algorithm algorithm, int rank);

}  // namespace tandem::fused
