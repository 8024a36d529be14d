#pragma once

#include <string>
#include <tandem/base/support.hpp>
#include <tandem/device/device.hpp>

#include "fused/scatter/call.hpp"
#include "fused/scatter/problem.hpp"

namespace tandem::fused {

// A scatter in one kernel: tiles are multiplied owner by owner, those of peers are pushed as they are done,
// and the own ones, which come last, add what has come. See docs/design/native_matmul_reduce_scatter.md.

/// The same on every rank.
[[nodiscard]] Support can_run_native_scatter(const ScatterProblem& problem, const Device& device);

/// Of an all-reduce: whether ranks send each other all of their rows, which each adds. Else it is a scatter,
/// and a gather of its sums. The same on every rank.
[[nodiscard]] bool exchanges_whole(const ScatterProblem& problem);

/// The product of a rank as all ranks count it; any memory order of b.
[[nodiscard]] gemm::Product planned_departing_product(const ScatterProblem& problem, const Device& device);

/// Decides on this rank's own part in it: ScatterProblem::gives_while_multiplying. Allocates nothing.
void ask_native(const ScatterCall& call, const Device& device, ScatterProblem& problem);

/// Why this rank's products are made before their rows are given to others; empty if they are not.
[[nodiscard]] std::string why_made_before(const ScatterProblem& problem, const ScatterCall& call,
                                          const Device& device);

}  // namespace tandem::fused
