#pragma once

#include <memory>
#include <tandem/base/error.hpp>
#include <tandem/bootstrap/group.hpp>
#include <tandem/device/device.hpp>
#include <tandem/device/stream.hpp>

#include "fused/call/run_call.hpp"
#include "fused/scatter/builder.hpp"

namespace tandem::fused {

struct ScatterPlan : OpPlan {
  ScatterRoots roots;
};
/// The plan of this problem; decided, and put into words, when the group meets it first.
[[nodiscard]] Result<std::shared_ptr<ScatterPlan>> plan_of(const ScatterProblem& problem, Group& group,
                                                           Device& device);

/// Both scatter ops behind their checks.
[[nodiscard]] Result<OpReport> scatter(const ScatterCall& call, const ScatterProblem& problem, Group& group,
                                       Stream& stream);

}  // namespace tandem::fused
