#include "program/checks.hpp"

#include <algorithm>
#include <vector>

namespace tandem::program {
namespace {

Step join(Lane lane, Lane waiter) {
  return {.kind = StepKind::kJoin, .lane = lane, .other = waiter, .label = trace::StepKind::kJoin};
}

bool is_join(const Step& step, Lane lane, Lane waiter) {
  return step.kind == StepKind::kJoin && step.lane == lane && step.other == waiter;
}

void add_checks(const Program& program, Checked which, std::vector<Step>& steps) {
  for (std::size_t i = 0; i < program.roots.size(); ++i) {
    if (program.roots[i].checked != which) continue;
    steps.push_back({.kind = StepKind::kCheck,
                     .lane = kSide,
                     .from = all_of(static_cast<RootId>(i)),
                     .label = trace::StepKind::kCheck});
  }
}

}  // namespace

Program with_checks(Program program) {
  std::vector<Step> steps = {join(kCurrent, kSide)};
  add_checks(program, Checked::kBefore, steps);
  steps.push_back(join(kSide, kCurrent));
  // The side lane knows already what a join in front would tell it.
  if (!program.steps.empty() && is_join(program.steps.front(), kCurrent, kSide))
    program.steps.erase(program.steps.begin());
  // Where the caller's lane waits for the side lane the last time.
  const auto last = std::find_if(program.steps.rbegin(), program.steps.rend(), [](const Step& step) {
                      return is_join(step, kSide, kCurrent);
                    }).base();
  const bool is_joined = last != program.steps.begin();
  const auto join_at = is_joined ? last - 1 : program.steps.end();
  steps.insert(steps.end(), program.steps.begin(), join_at);
  add_checks(program, Checked::kBeside, steps);
  if (!is_joined) steps.push_back(join(kSide, kCurrent));
  steps.insert(steps.end(), join_at, program.steps.end());
  program.steps = std::move(steps);
  program.num_lanes = std::max(program.num_lanes, kSide + 1);
  return program;
}

bool checks_nan(const Program& program) {
  return std::any_of(program.steps.begin(), program.steps.end(),
                     [](const Step& step) { return step.kind == StepKind::kCheck; });
}

}  // namespace tandem::program
