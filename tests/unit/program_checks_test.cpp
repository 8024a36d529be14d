#include "program/checks.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "program/verify.hpp"
#include "unit/program_problems.hpp"
#include "unit/program_runs.hpp"

// Where checks for NaN stand in programs. That such programs run to their end: program_verify_test.cpp.

namespace tandem {
namespace {

using program::Program;
using program::Step;
using program::StepKind;

Program pipelined_gather() {
  const fused::GatherProblem problem{
      .sizes = {8, 64}, .dim = 0, .world = 2, .device = {}, .num_b = 1, .sum_n = 4, .has_bias = true};
  return test::programs_of(&fused::build_pipelined_gather, problem)[1];
}

std::string steps_of(const Program& program) {
  std::string text;
  for (const Step& step : program.steps) text += program.to_string(step) + "\n";
  return text;
}

TEST(ProgramChecks, what_peers_get_is_checked_first_and_the_rest_last) {
  const Program program = program::with_checks(pipelined_gather());
  EXPECT_EQ(steps_of(program),
            "cur > bk\n"
            "bk: check a for NaN\n"
            "bk > cur\n"
            "cur: copy a -> published a\n"
            "cur: barrier 1\n"
            "cur > bk\n"
            "cur: out0[4:8] = a * b0 + bias0\n"
            "bk: get published a of rank 0 -> gathered a[0:4]\n"
            "bk: out0[0:4] = gathered a[0:4] * b0 + bias0\n"
            "bk: check b0 for NaN\n"
            "bk: check bias0 for NaN\n"
            "bk > cur\n"
            "cur: barrier 0\n");
  EXPECT_TRUE(program::checks_nan(program));
  EXPECT_FALSE(program::checks_nan(pipelined_gather()));
  EXPECT_TRUE(test::trace_of(program).to_string().starts_with("cur>bk bk:check bk>cur cur:mv"))
      << test::trace_of(program).to_string();
}

TEST(ProgramChecks, a_program_of_one_lane_gets_the_second) {
  const fused::GatherProblem problem{
      .sizes = {8, 64}, .dim = 0, .world = 2, .device = {}, .num_b = 1, .sum_n = 4};
  const Program before = test::programs_of(&fused::build_serial_gather, problem)[0];
  ASSERT_EQ(before.num_lanes, 1);
  const Program program = program::with_checks(before);
  EXPECT_EQ(program.num_lanes, 2);
  EXPECT_EQ(steps_of(program),
            "cur > bk\n"
            "bk: check a for NaN\n"
            "bk > cur\n" +
                steps_of(before) +
                "bk: check b0 for NaN\n"
                "bk > cur\n");
}

// Each of them verify() refuses: on the caller's lane, in front of the join, behind the last one.
TEST(ProgramChecks, mutants_are_refused) {
  const fused::GatherProblem problem{
      .sizes = {8, 64}, .dim = 0, .world = 2, .device = {}, .num_b = 1, .sum_n = 4};
  test::Programs good;
  for (const Program& one : test::programs_of(&fused::build_pipelined_gather, problem))
    good.push_back(program::with_checks(one));
  ASSERT_TRUE(program::verify(good));
  const auto is_check = [](const Step& step) { return step.kind == StepKind::kCheck; };
  test::Programs on_current = good;
  std::find_if(on_current[1].steps.begin(), on_current[1].steps.end(), is_check)->lane = program::kCurrent;
  EXPECT_FALSE(program::verify(on_current));
  test::Programs too_early = good;
  std::swap(too_early[1].steps[0], too_early[1].steps[1]);
  EXPECT_FALSE(program::verify(too_early));
  test::Programs too_late = good;
  auto& steps = too_late[1].steps;
  const auto last = std::find_if(steps.rbegin(), steps.rend(), is_check).base() - 1;
  std::rotate(last, last + 1, steps.end());
  EXPECT_FALSE(program::verify(too_late));
}

}  // namespace
}  // namespace tandem
