#pragma once

#include <tandem/base/error.hpp>
#include <tandem/bootstrap/group.hpp>
#include <tandem/device/stream.hpp>
#include <tandem/fused/all_gather_matmul.hpp>

#include "fused/gather_problem.hpp"

namespace tandem::fused {

/// Everything that can be wrong with the arguments on this rank, before anything is enqueued.
[[nodiscard]] Result<GatherProblem> check(const AllGatherMatmulArgs& args, const Group& group,
                                          const Stream& stream);

/// What check() returns for the same call while its stream records.
[[nodiscard]] GatherProblem as_recorded(const AllGatherMatmulArgs& args, const GatherProblem& eager,
                                        const Device& device);

}  // namespace tandem::fused
