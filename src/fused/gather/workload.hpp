#pragma once

#include "fused/call/choose.hpp"
#include "fused/gather/problem.hpp"

namespace tandem::fused {

/// What a gather's algorithms have to do, but for what the ranks know of their cores. It follows from the
/// problem, from what `device` says of its products, and from what is around.
[[nodiscard]] Workload workload_of(const GatherProblem& problem, const Device& device,
                                   const Surroundings& around);

}  // namespace tandem::fused
