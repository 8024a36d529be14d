#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "program/verify.hpp"
#include "unit/program_mutants.hpp"
#include "unit/program_problems.hpp"
#include "unit/program_runs.hpp"

// Mutants of scatters and all-reduces whose ranks push: programs with one fault each do not pass.

namespace tandem {
namespace {

using namespace test::mutants;
using test::Programs;
using test::programs_of;

/// Scatters whose partials are pushed, in one chunk or several, with and without a sum at the end.
std::vector<Programs> pushed_programs() {
  std::vector<Programs> all;
  for (const int world : {2, 3, 4, 5}) {
    for (const int chunks : {1, 2, 3}) {
      fused::ScatterProblem scatter = test::small_pushed_scatter(world, chunks);
      for (const bool gives_all : {false, true}) {
        scatter.gives_all = gives_all;
        scatter.num_products = 1;
        scatter.keeps_product = false;
        all.push_back(programs_of(&fused::build_pipelined_scatter, scatter));
        scatter.num_products = 2;
        scatter.keeps_product = true;
        all.push_back(programs_of(&fused::build_pipelined_scatter, scatter));
      }
    }
  }
  return all;
}

/// Whether it is an all-reduce: then each rank has as many words for sums behind those for partials.
bool gives_sums(const program::Program& program) {
  return program.name.find("all_reduce") != std::string::npos;
}

/// Whether a rank knows without its word that chunk `word` of `sender` is there. Where products end, each
/// pushes its last chunk to the rank before it, behind the first chunks of all others.
bool is_known_anyway(const program::Program& receiver, int sender, std::int64_t word) {
  const auto& all = receiver.steps;
  const auto puts_partial = [](const Step& step) { return step.label == trace::StepKind::kPut; };
  const auto last_put = std::find_if(all.rbegin(), all.rend(), puts_partial).base();
  const bool awaits_early = std::any_of(all.begin(), last_put, of_kind(StepKind::kAwait));
  const std::int64_t chunks = receiver.chunks_per_rank / (gives_sums(receiver) ? 2 : 1);
  return awaits_early && word % receiver.chunks_per_rank == chunks - 1 &&
         sender != (receiver.rank + 1) % receiver.world;
}

TEST(PushedMutants, a_missing_step) {
  for (const Programs& programs : pushed_programs()) {
    ASSERT_TRUE(program::verify(programs));
    expect_each_needed(programs, of_kind(StepKind::kWriteWord), {kStuck});
    expect_each_needed(programs, of_kind(StepKind::kPut), {kNotWritten});
    expect_each_needed(
        programs, [](const Step& step) { return step.kind == StepKind::kSum && step.lane == program::kSide; },
        {kNotWritten, kNotOrdered});
    expect_each_needed(programs, of_kind(StepKind::kReset), {kNotReset});
  }
}

TEST(PushedMutants, a_missing_await) {
  for (const Programs& programs : pushed_programs()) {
    for (const program::Program& own : programs) {
      for (const std::size_t at : find(programs, own.rank, of_kind(StepKind::kAwait))) {
        const Programs mutant = without(programs, own.rank, at);
        if (is_known_anyway(own, own.steps[at].peer, own.steps[at].from.first)) {
          EXPECT_TRUE(program::verify(mutant)) << text_of(programs, own.rank, at);
        } else {
          expect_caught(mutant, {kNotOrdered, kNotWritten, kStillUsed},
                        text_of(programs, own.rank, at) + " missing");
        }
      }
    }
  }
}

TEST(PushedMutants, a_missing_join) {
  for (const Programs& programs : pushed_programs()) {
    for (int rank = 0; rank < static_cast<int>(programs.size()); ++rank) {
      for (const std::size_t at : find(programs, rank, of_kind(StepKind::kJoin))) {
        const Programs mutant = without(programs, rank, at);
        if (is_implied(programs[static_cast<std::size_t>(rank)], at)) {
          EXPECT_TRUE(program::verify(mutant)) << text_of(programs, rank, at);
          continue;
        }
        expect_caught(mutant, {kNotOrdered, kNotWritten, kNotBehindCaller, kNotJoined},
                      text_of(programs, rank, at) + " missing");
      }
    }
  }
}

TEST(PushedMutants, a_word_before_its_partial) {
  for (const Programs& programs : pushed_programs()) {
    for (int rank = 0; rank < static_cast<int>(programs.size()); ++rank) {
      for (const std::size_t word : find(programs, rank, of_kind(StepKind::kWriteWord))) {
        Programs mutant = programs;
        Step& early = steps_of(mutant, rank)[word];
        const program::Program& receiver = programs[static_cast<std::size_t>(early.peer)];
        if (is_known_anyway(receiver, rank, early.to.first)) continue;
        std::swap(steps_of(mutant, rank)[word - 1], early);
        expect_caught(mutant, {kNotOrdered, kNotWritten}, text_of(programs, rank, word) + " too early");
      }
    }
  }
}

TEST(PushedMutants, a_word_of_another_rank) {
  for (const Programs& programs : pushed_programs()) {
    const int world = static_cast<int>(programs.size());
    const std::int64_t chunks = programs.front().chunks_per_rank;
    for (int rank = 0; rank < world; ++rank) {
      for (const std::size_t at : find(programs, rank, of_kind(StepKind::kAwait))) {
        Programs mutant = programs;
        Step& step = steps_of(mutant, rank)[at];
        step.from.first = (step.from.first + chunks) % (world * chunks);
        expect_caught(mutant, {kWordsOfOthers}, text_of(programs, rank, at) + " of another rank's word");
        if (is_known_anyway(programs[static_cast<std::size_t>(rank)], step.peer, step.from.first)) continue;
        step.peer = static_cast<std::int16_t>((step.peer + 1) % world);
        expect_caught(mutant, {kStuck, kNotOrdered, kNotWritten, kStillUsed},
                      text_of(programs, rank, at) + " in place of the next rank's");
      }
      for (const std::size_t at : find(programs, rank, of_kind(StepKind::kWriteWord))) {
        Programs mutant = programs;
        Step& step = steps_of(mutant, rank)[at];
        step.to.first = (step.to.first + chunks) % (world * chunks);
        expect_caught(mutant, {kWordsOfOthers}, text_of(programs, rank, at) + " as another rank's");
      }
    }
  }
}

TEST(PushedMutants, a_partial_at_another_place) {
  for (const Programs& programs : pushed_programs()) {
    for (int rank = 0; rank < static_cast<int>(programs.size()); ++rank) {
      for (const std::size_t put : find(programs, rank, of_kind(StepKind::kPut))) {
        Programs mutant = programs;
        auto& roots = mutant[static_cast<std::size_t>(rank)].roots;
        program::Root& there = roots[static_cast<std::size_t>(steps_of(mutant, rank)[put].to.root)];
        const bool is_first = there.offset_bytes == 0;
        there.offset_bytes += is_first ? there.most_bytes : -there.offset_bytes;
        expect_caught(mutant, {kNotOrdered, kNotWritten}, text_of(programs, rank, put) + " elsewhere");
      }
    }
  }
}

// What came in the call before looks like what comes now.
TEST(PushedMutants, words_that_are_not_reset_in_time) {
  for (const Programs& programs : pushed_programs()) {
    Programs late = programs;
    Programs only_barriers = programs;
    Programs on_callers_lane = programs;
    for (int rank = 0; rank < static_cast<int>(programs.size()); ++rank) {
      const std::size_t reset = find(programs, rank, of_kind(StepKind::kReset)).at(0);
      auto& steps = steps_of(late, rank);
      std::rotate(steps.begin() + static_cast<std::ptrdiff_t>(reset),
                  steps.begin() + static_cast<std::ptrdiff_t>(reset) + 1, steps.end() - 1);
      steps_of(only_barriers, rank)[reset].kind = StepKind::kBarrier;
      steps_of(only_barriers, rank)[reset].to = {};
      // The words that they then look at may still be those of the call before.
      auto& beside = steps_of(on_callers_lane, rank);
      const std::size_t last = beside.size() - 1;
      for (Step& step : beside) {
        if (step.kind == StepKind::kAwait) step.lane = program::kCurrent;
      }
      for (std::size_t i = last; i-- > 0;) {
        if (beside[i].kind == StepKind::kJoin && beside[i].lane == program::kSide)
          beside.erase(beside.begin() + static_cast<std::ptrdiff_t>(i));
      }
    }
    expect_caught(late, {kNotOrdered, kStuck, kNotBehindCaller, kNotWritten}, "resets at the end");
    expect_caught(only_barriers, {kNotReset}, "barriers in place of resets");
    if (programs.size() == 2)
      expect_caught(on_callers_lane, {kNotOrdered, kNotWritten},
                    "waits for words on a lane that may pass the reset");
  }
}

}  // namespace
}  // namespace tandem
