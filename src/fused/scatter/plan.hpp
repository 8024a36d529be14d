#pragma once

#include <memory>
#include <tandem/base/error.hpp>
#include <tandem/bootstrap/group.hpp>
#include <tandem/device/device.hpp>

#include "fused/call/run_call.hpp"
#include "fused/scatter/builder.hpp"

namespace tandem::fused {

struct ScatterPlan : OpPlan {
  ScatterRoots roots;
};
/// The plan of this problem; decided, and put into words, when the group meets it first.
[[nodiscard]] Result<std::shared_ptr<ScatterPlan>> plan_of(const CheckedScatter& checked, Group& group,
                                                           Device& device);

}  // namespace tandem::fused
