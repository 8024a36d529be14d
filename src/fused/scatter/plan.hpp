#pragma once

#include <string_view>
#include <tandem/base/error.hpp>
#include <tandem/bootstrap/group.hpp>
#include <tandem/device/device.hpp>

#include "fused/call/group_memory.hpp"
#include "fused/scatter/problem.hpp"

namespace tandem::fused {

/// Decides on the algorithm and puts it into words. `op`: "matmul_reduce_scatter".
[[nodiscard]] Result<OpPlan> decide(std::string_view op, const ScatterProblem& problem, Group& group,
                                    Device& device);

}  // namespace tandem::fused
