#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "program/verify.hpp"
#include "unit/program_problems.hpp"

// Mutants of programs, and what the verifier says of them.

namespace tandem::test::mutants {

using program::Step;
using program::StepKind;

// What verify() says of them.
inline constexpr std::string_view kNotOrdered = "use the same memory, one writes it, and neither waits";
inline constexpr std::string_view kNotBehindCaller = "'s caller did before the call";
inline constexpr std::string_view kNotWritten = "that nobody has written";
inline constexpr std::string_view kNotJoined = "is not joined to the caller's in the end";
inline constexpr std::string_view kStillUsed = "may still use its memory";
inline constexpr std::string_view kStuck = "nobody ends what these wait for";
inline constexpr std::string_view kNotMet = "meets the other ranks in";
inline constexpr std::string_view kNotBehindReset = "does not stand behind a reset";
inline constexpr std::string_view kNotReset = "words or flags are not reset";
inline constexpr std::string_view kWordsOfOthers = "is of words that rank";
inline constexpr std::string_view kOneChannel = "use the same channel, and neither waits";

/// The programs do not pass, for one of these reasons.
inline void expect_caught(const Programs& mutant, std::initializer_list<std::string_view> reasons,
                          const std::string& what) {
  const auto verified = program::verify(mutant);
  ASSERT_FALSE(verified) << what << " is not seen";
  EXPECT_EQ(verified.error().code(), ErrorCode::kInternal);
  const std::string text = verified.error().text();
  EXPECT_TRUE(std::any_of(reasons.begin(), reasons.end(),
                          [&](std::string_view reason) { return text.find(reason) != std::string::npos; }))
      << what << ": " << text;
}

inline std::string text_of(const Programs& programs, int rank, std::size_t at) {
  const program::Program& own = programs[static_cast<std::size_t>(rank)];
  return fmt::format("{}: '{}' of rank {}", own.name, own.to_string(own.steps[at]), rank);
}

using Which = std::function<bool(const Step& step)>;
inline Which of_kind(StepKind kind) {
  return [kind](const Step& step) { return step.kind == kind; };
}

/// Steps of this rank's program.
inline std::vector<std::size_t> find(const Programs& programs, int rank, const Which& which) {
  const auto& steps = programs[static_cast<std::size_t>(rank)].steps;
  std::vector<std::size_t> found;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    if (which(steps[i])) found.push_back(i);
  }
  return found;
}

inline std::vector<Step>& steps_of(Programs& programs, int rank) {
  return programs[static_cast<std::size_t>(rank)].steps;
}

inline Programs without(Programs programs, int rank, std::size_t at) {
  auto& steps = steps_of(programs, rank);
  steps.erase(steps.begin() + static_cast<std::ptrdiff_t>(at));
  return programs;
}

/// Each of these steps is missing on one rank.
inline void expect_each_needed(const Programs& programs, const Which& which,
                               std::initializer_list<std::string_view> reasons) {
  for (int rank = 0; rank < static_cast<int>(programs.size()); ++rank) {
    for (const std::size_t at : find(programs, rank, which))
      expect_caught(without(programs, rank, at), reasons, text_of(programs, rank, at) + " missing");
  }
}

/// Whether what this join waits for needs none: an earlier one has done, or it is the caller's alone.
inline bool is_implied(const program::Program& program, std::size_t join) {
  const Step& of = program.steps[join];
  for (std::size_t i = join; i-- > 0;) {
    const Step& step = program.steps[i];
    if (step.kind == StepKind::kJoin && step.lane == of.lane && step.other == of.other) return true;
    if (step.lane != of.lane || step.kind == StepKind::kJoin) continue;
    const program::RootId to = step.kind == StepKind::kProduct
                                   ? program.products[static_cast<std::size_t>(step.product)].out.root
                                   : step.to.root;
    const bool is_callers =
        to != program::kNone && program.roots[static_cast<std::size_t>(to)].space == program::Space::kCaller;
    const bool is_pushed = std::any_of(program.steps.begin(), program.steps.end(), [to](const Step& later) {
      return later.kind == StepKind::kPut && later.from.root == to;
    });
    if (of.other == program::kCurrent || !is_callers || is_pushed) return false;
  }
  return false;
}

}  // namespace tandem::test::mutants
