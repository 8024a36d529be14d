#pragma once

#include <memory>

#include "program/program.hpp"
#include "timeline/timeline_impl.hpp"

namespace tandem::program {

/// The lane that a step keeps busy: of a join the one that waits.
[[nodiscard]] inline Lane busy_lane(const Step& step) {
  return step.kind == StepKind::kJoin ? step.other : step.lane;
}

/// What a timeline says of the program's steps, one by one.
[[nodiscard]] std::shared_ptr<const timeline::StepList> noted_steps_of(const Program& program);

}  // namespace tandem::program
