#pragma once

#include <tandem/base/error.hpp>
#include <tandem/bootstrap/group.hpp>
#include <tandem/device/stream.hpp>
#include <tandem/fused/scaled_matmul_reduce_scatter.hpp>

#include "fused/scatter_problem.hpp"

namespace tandem::fused {

/// Everything that can be wrong with the arguments on this rank, before anything is enqueued.
[[nodiscard]] Result<ScatterProblem> check(const ScaledMatmulReduceScatterArgs& args, const Group& group,
                                           const Stream& stream);

}  // namespace tandem::fused
