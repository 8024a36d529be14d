#pragma once

#include "fused/call/choose.hpp"
#include "fused/scatter/problem.hpp"

namespace tandem::fused {

/// What a scatter's or an all-reduce's algorithms have to do, but for what the ranks know of their cores. It
/// follows from the problem, from what `device` says of its products, and from what is around.
[[nodiscard]] Workload workload_of(const ScatterProblem& problem, const Device& device,
                                   const Surroundings& around);

}  // namespace tandem::fused
