#pragma once

#include <memory>
#include <tandem/base/error.hpp>
#include <tandem/bootstrap/group.hpp>
#include <tandem/device/device.hpp>

#include "fused/call/run_call.hpp"
#include "fused/gather/builder.hpp"

namespace tandem::fused {

struct GatherPlan : OpPlan {
  GatherRoots roots;
};
/// The plan of this problem; decided, and put into words, when the group meets it first.
[[nodiscard]] Result<std::shared_ptr<GatherPlan>> plan_of(const CheckedGather& checked, Group& group,
                                                          Device& device);

}  // namespace tandem::fused
