#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>

#include "program/checks.hpp"
#include "program/verify.hpp"
#include "unit/program_mutants.hpp"
#include "unit/program_problems.hpp"
#include "unit/program_runs.hpp"

// All programs of all builders run to their end in any order of events. Programs with a fault do not pass.

namespace tandem {
namespace {

using program::Lane;
using program::Step;
using program::StepKind;
using namespace test::mutants;
using test::Programs;
using test::programs_of;

class ProgramVerify : public testing::TestWithParam<int> {
 protected:
  static int world() { return GetParam(); }
  template <class Build, class Problem>
  void expect_passes(Build build, const Problem& problem, const std::string& algorithm) {
    ++num_verified_;
    Programs programs = programs_of(build, problem);
    expect_passes(programs, algorithm + " of " + to_string(problem));
    for (program::Program& one : programs) one = program::with_checks(std::move(one));
    expect_passes(programs, algorithm + " with checks of " + to_string(problem));
  }
  /// There are no such programs of one rank.
  void count_none() { fewest_ = -1; }
  void TearDown() override {
    EXPECT_EQ(num_failed_, 0) << "of " << num_verified_ << " problems";
    EXPECT_GT(num_verified_, fewest_);
  }

 private:
  void expect_passes(const Programs& programs, const std::string& what) {
    const auto verified = program::verify(programs);
    if (verified || num_failed_++ > 0) return;
    ADD_FAILURE() << what << ": " << verified.error().to_string() << "\n" << programs.front().to_string();
  }

  int fewest_ = 100;
  int num_verified_ = 0;
  int num_failed_ = 0;
};

TEST_P(ProgramVerify, gathers_pass) {
  const auto expect_both = [&](const fused::GatherProblem& problem) {
    expect_passes(&fused::build_serial_gather, problem, "serial");
    expect_passes(&fused::build_pipelined_gather, problem, "pipelined");
  };
  test::for_plain_gathers(world(), expect_both);
  test::for_scaled_gathers(world(), expect_both);
  test::for_quantized_gathers(world(), expect_both);
}

TEST_P(ProgramVerify, native_gathers_pass) {
  test::for_native_gathers(world(), [&](const fused::GatherProblem& problem) {
    expect_passes(&fused::build_native_gather, problem, "native");
  });
}

TEST_P(ProgramVerify, scatters_pass) {
  test::for_scatters(world(), [&](const fused::ScatterProblem& problem) {
    expect_passes(&fused::build_serial_scatter, problem, "serial");
    expect_passes(&fused::build_pipelined_scatter, problem, "pipelined");
    const bool is_native = world() > 1 && !problem.scatters_last() && problem.partials == problem.dtype &&
                           problem.part_of(world() - 1).size > 0;
    if (!is_native) return;
    fused::ScatterProblem native = problem;
    for (const bool while_multiplying : {false, problem.num_products == 1}) {
      native.gives_while_multiplying = while_multiplying;
      expect_passes(&fused::build_native_scatter, native, "native");
    }
  });
}

TEST_P(ProgramVerify, pulled_gathers_pass) {
  test::for_pulled_gathers(world(), [&](const fused::GatherProblem& problem) {
    expect_passes(&fused::build_native_gather, problem, "native, pulled");
  });
}

TEST_P(ProgramVerify, told_scatters_pass) {
  if (world() == 1) return count_none();
  test::for_told_scatters(world(), [&](const fused::ScatterProblem& problem) {
    expect_passes(&fused::build_native_scatter, problem, "native, told");
    expect_passes(&fused::build_pipelined_scatter, problem, "pipelined, told");
  });
}

TEST_P(ProgramVerify, told_all_reduces_pass) {
  if (world() == 1) return count_none();
  test::for_told_all_reduces(world(), [&](const fused::ScatterProblem& problem) {
    expect_passes(&fused::build_native_scatter, problem, "native, told");
  });
}

TEST_P(ProgramVerify, pushed_scatters_pass) {
  test::for_pushed_scatters(world(), [&](const fused::ScatterProblem& problem) {
    expect_passes(&fused::build_pipelined_scatter, problem, "pipelined, pushed");
  });
}

TEST_P(ProgramVerify, all_reduces_pass) {
  test::for_all_reduces(world(), [&](const fused::ScatterProblem& problem) {
    expect_passes(&fused::build_serial_scatter, problem, "serial");
    expect_passes(&fused::build_pipelined_scatter, problem, "pipelined");
    if (world() == 1 || problem.partials != problem.dtype || problem.rows() == 0 || problem.n() == 0) return;
    // Whole results are exchanged, or sums of many rows gathered.
    for (const std::int64_t rows : {problem.rows(), problem.rows() + 600}) {
      fused::ScatterProblem native = problem;
      native.sizes[0] = rows;
      native.copied_bytes = 2 * native.copied_bytes * rows / problem.rows();
      for (const bool while_multiplying : {false, problem.num_products == 1}) {
        native.gives_while_multiplying = while_multiplying;
        expect_passes(&fused::build_native_scatter, native, "native");
      }
    }
  });
}

TEST_P(ProgramVerify, pushed_all_reduces_pass) {
  test::for_pushed_all_reduces(world(), [&](const fused::ScatterProblem& problem) {
    expect_passes(&fused::build_pipelined_scatter, problem, "pipelined, pushed");
  });
}

INSTANTIATE_TEST_SUITE_P(Worlds, ProgramVerify, testing::Range(1, 9), testing::PrintToStringParamName());

// Mutants: programs with one fault each.

/// Programs of few ranks whose joins, barriers and gets are all needed.
std::vector<Programs> two_lane_programs() {
  std::vector<Programs> all;
  for (const int world : {2, 3, 4, 5}) {
    fused::GatherProblem gather = test::small_gather(world);
    all.push_back(programs_of(&fused::build_pipelined_gather, gather));
    gather.in_place_offset = 0;
    all.push_back(programs_of(&fused::build_pipelined_gather, gather));
    gather.in_place_offset = -1;
    gather.keeps_gathered = false;
    gather.copied = 1;
    all.push_back(programs_of(&fused::build_pipelined_gather, gather));
    gather.dim = 1;
    gather.sizes = {5, 3 * world};
    all.push_back(programs_of(&fused::build_pipelined_gather, gather));
    gather.is_scaled = true;
    gather.scale_mode = ScaleMode::kRowwiseSharded;
    gather.num_also_gathered = 1;
    gather.also_gather[0] = {DType::kBF16, 5};
    all.push_back(programs_of(&fused::build_pipelined_gather, gather));
    fused::ScatterProblem scatter = test::small_scatter(world);
    all.push_back(programs_of(&fused::build_pipelined_scatter, scatter));
    for (const int rounds : {1, 2, 3})
      all.push_back(programs_of(&fused::build_pipelined_scatter, test::small_all_reduce(world, rounds)));
    scatter.partials = scatter.dtype = DType::kBF16;
    scatter.num_products = 2;
    scatter.dim = 1;
    scatter.sizes = {5, 3 * world};
    all.push_back(programs_of(&fused::build_pipelined_scatter, scatter));
  }
  return all;
}

struct Natives {
  Programs programs;
  bool consumes = true;  ///< products take each chunk as it comes; or else they wait for all of a rank's
  int waiter = -1;       ///< a rank that multiplies nothing and reads nothing
};

/// With lanes for pushes unless products send to all peers. Eager ones, or recorded ones.
std::vector<Natives> native_programs(bool is_recorded = false) {
  std::vector<Natives> all;
  for (const int world : {2, 3, 4}) {
    for (int piece_peers = 0; piece_peers < world; ++piece_peers) {
      for (const bool has_pieces : {false, true}) {
        fused::GatherProblem gather = test::small_gather(world, false);
        if (has_pieces) gather.sizes = {1024 * world, 8};
        gather.piece_peers = piece_peers;
        gather.is_capturing = is_recorded;
        const Programs waiting = programs_of(&fused::build_native_gather, gather);
        for (const int first_consumed : {0, -1}) {
          gather.first_consumed = first_consumed;
          gather.by_mm = first_consumed < 0 ? 1 : 0;
          all.push_back({programs_of(&fused::build_native_gather, gather), first_consumed >= 0});
          all.push_back({all.back().programs, first_consumed >= 0, 1});
          all.back().programs[1] = waiting[1];
        }
      }
    }
  }
  return all;
}

std::vector<Natives> all_native_programs() {
  std::vector<Natives> all = native_programs();
  for (Natives& natives : native_programs(true)) all.push_back(std::move(natives));
  return all;
}

/// Whose data peers read where it is held: gathers and scatters, over a link and without one.
std::vector<Programs> held_programs() {
  std::vector<Programs> all;
  for (const int world : {2, 3, 4}) {
    for (const bool has_link : {false, true}) {
      fused::GatherProblem gather = test::small_gather(world, false);
      gather.sizes = {256 * world, 8};
      gather.pulls = true;
      gather.has_link = has_link;
      for (const int first_consumed : {0, -1}) {
        gather.first_consumed = first_consumed;
        gather.by_mm = first_consumed < 0 ? 1 : 0;
        all.push_back(programs_of(&fused::build_native_gather, gather));
      }
      for (const bool at_once : {false, true}) {
        fused::ScatterProblem scatter = test::small_told_scatter(world, at_once, has_link);
        all.push_back(programs_of(&fused::build_native_scatter, scatter));
        scatter.gives_all = true;
        for (scatter.rounds = 1; scatter.rounds < 3; ++scatter.rounds)
          all.push_back(programs_of(&fused::build_native_scatter, scatter));
      }
    }
  }
  return all;
}

TEST(ProgramMutants, of_what_peers_read_where_it_is_held) {
  for (const Programs& programs : held_programs()) {
    ASSERT_TRUE(program::verify(programs)) << programs.front().to_string();
    expect_each_needed(programs, of_kind(StepKind::kWriteWord), {kStuck});
    expect_each_needed(programs, of_kind(StepKind::kAwait), {kNotOrdered, kNotWritten, kStillUsed});
    expect_each_needed(programs, of_kind(StepKind::kCross), {kNotOrdered, kNotWritten, kStillUsed, kStuck});
    const auto ends_side = [](const Step& step) {
      return step.kind == StepKind::kJoin && step.lane == program::kSide;
    };
    expect_each_needed(programs, ends_side, {kNotJoined, kNotOrdered, kNotWritten, kStillUsed});
    for (int rank = 0; rank < static_cast<int>(programs.size()); ++rank) {
      Programs silent = programs;
      auto& products = silent[static_cast<std::size_t>(rank)].products;
      const bool tells =
          std::any_of(products.begin(), products.end(), [](const auto& one) { return one.telling; });
      for (program::Product& one : products) one.telling.reset();
      if (tells) expect_caught(silent, {kStuck}, fmt::format("rank {} tells nobody", rank));
      // A word that stands before what it tells of.
      for (const std::size_t word : find(programs, rank, of_kind(StepKind::kWriteWord))) {
        const Step& step = programs[static_cast<std::size_t>(rank)].steps[word];
        if (word == 0) continue;
        Programs mutant = programs;
        auto& steps = steps_of(mutant, rank);
        const auto first = std::find_if(steps.begin(), steps.end(), [&](const Step& one) {
          return one.lane == step.lane && one.kind != StepKind::kJoin;
        });
        std::rotate(first, steps.begin() + static_cast<std::ptrdiff_t>(word),
                    steps.begin() + static_cast<std::ptrdiff_t>(word) + 1);
        expect_caught(mutant, {kNotOrdered, kNotWritten}, text_of(programs, rank, word) + " first of all");
      }
    }
  }
}

// The sum of slices joins lanes wherever it changes lanes; some of that is implied.
TEST(ProgramMutants, a_missing_join) {
  int num_implied = 0;
  const auto expect_needed = [&](const Programs& programs, std::initializer_list<std::string_view> reasons) {
    ASSERT_TRUE(program::verify(programs));
    for (int rank = 0; rank < static_cast<int>(programs.size()); ++rank) {
      for (const std::size_t at : find(programs, rank, of_kind(StepKind::kJoin))) {
        const Programs mutant = without(programs, rank, at);
        if (!is_implied(programs[static_cast<std::size_t>(rank)], at)) {
          expect_caught(mutant, reasons, text_of(programs, rank, at) + " missing");
          continue;
        }
        ++num_implied;
        EXPECT_TRUE(program::verify(mutant)) << text_of(programs, rank, at);
      }
    }
  };
  for (const Programs& programs : two_lane_programs())
    expect_needed(programs, {kNotOrdered, kNotWritten, kNotBehindCaller, kNotJoined});
  EXPECT_LT(num_implied, 30);
  num_implied = 0;
  for (const Natives& natives : all_native_programs())
    expect_needed(natives.programs, {kNotBehindCaller, kNotJoined});
  EXPECT_EQ(num_implied, 0);
}

TEST(ProgramMutants, a_lane_that_is_not_joined_in_the_end) {
  for (const Programs& programs : two_lane_programs()) {
    for (int rank = 0; rank < static_cast<int>(programs.size()); ++rank) {
      const std::size_t last = find(programs, rank, of_kind(StepKind::kJoin)).back();
      if (is_implied(programs[static_cast<std::size_t>(rank)], last)) continue;
      expect_caught(without(programs, rank, last), {fmt::format("rank {}: lane bk {}", rank, kNotJoined)},
                    text_of(programs, rank, last) + " missing");
    }
  }
}

/// Barriers are the same on all ranks: each lane's n-th is missing, or changed, everywhere.
void for_each_barrier(const Programs& programs, const std::function<void(Lane lane, std::size_t n)>& body) {
  for (Lane lane = 0; lane < programs.front().num_lanes; ++lane) {
    const auto barriers = find(programs, 0, [lane](const Step& step) {
      return step.kind == StepKind::kBarrier && step.lane == lane;
    });
    for (std::size_t n = 0; n < barriers.size(); ++n) body(lane, n);
  }
}
std::size_t barrier_at(const Programs& programs, int rank, Lane lane, std::size_t n) {
  return find(programs, rank,
              [lane](const Step& step) { return step.kind == StepKind::kBarrier && step.lane == lane; })[n];
}

TEST(ProgramMutants, a_missing_quantisation) {
  for (const int world : {1, 2, 3}) {
    fused::GatherProblem gather = test::small_gather(world);
    gather.dtype = DType::kBF16;
    gather.is_scaled = true;
    gather.scale_mode = ScaleMode::kRowwiseSharded;
    gather.quantize = DType::kF8E4M3;
    for (const auto build : {&fused::build_serial_gather, &fused::build_pipelined_gather}) {
      const Programs programs = programs_of(build, gather);
      ASSERT_FALSE(find(programs, 0, of_kind(StepKind::kQuantize)).empty());
      expect_each_needed(programs, of_kind(StepKind::kQuantize), {kNotWritten});
    }
  }
}

TEST(ProgramMutants, a_missing_barrier) {
  for (const Programs& programs : two_lane_programs()) {
    expect_each_needed(programs, of_kind(StepKind::kBarrier), {kNotMet});
    for_each_barrier(programs, [&](Lane lane, std::size_t n) {
      Programs mutant = programs;
      for (int rank = 0; rank < static_cast<int>(programs.size()); ++rank)
        mutant = without(mutant, rank, barrier_at(programs, rank, lane, n));
      expect_caught(mutant, {kNotOrdered, kNotBehindCaller, kStillUsed, kNotWritten},
                    text_of(programs, 0, barrier_at(programs, 0, lane, n)) + " missing everywhere");
    });
  }
}

TEST(ProgramMutants, a_barrier_on_the_wrong_lane) {
  for (const Programs& programs : two_lane_programs()) {
    for_each_barrier(programs, [&](Lane lane, std::size_t n) {
      Programs everywhere = programs;
      for (int rank = 0; rank < static_cast<int>(programs.size()); ++rank) {
        const std::size_t at = barrier_at(programs, rank, lane, n);
        Programs here = programs;
        for (Programs* const mutant : {&here, &everywhere})
          steps_of(*mutant, rank)[at].lane = static_cast<Lane>(1 - lane);
        expect_caught(here, {kNotMet, kNotJoined}, text_of(programs, rank, at) + " on the other lane");
      }
      expect_caught(everywhere,
                    {kNotOrdered, kNotBehindCaller, kStillUsed, kNotWritten, kNotJoined, kOneChannel, kStuck},
                    text_of(programs, 0, barrier_at(programs, 0, lane, n)) + " on the other lane everywhere");
    });
  }
}

TEST(ProgramMutants, a_get_before_its_barrier) {
  for (const Programs& programs : two_lane_programs()) {
    for (int rank = 0; rank < static_cast<int>(programs.size()); ++rank) {
      for (const std::size_t get : find(programs, rank, of_kind(StepKind::kGet))) {
        Programs mutant = programs;
        auto& steps = steps_of(mutant, rank);
        const auto at = static_cast<std::ptrdiff_t>(get);
        const auto barrier = std::find_if(std::make_reverse_iterator(steps.begin() + at), steps.rend(),
                                          of_kind(StepKind::kBarrier));
        ASSERT_NE(barrier, steps.rend());
        std::rotate(barrier.base() - 1, steps.begin() + at, steps.begin() + at + 1);
        expect_caught(mutant, {kNotOrdered, kNotBehindCaller, kNotWritten},
                      text_of(programs, rank, get) + " before its barrier");
      }
    }
  }
}

TEST(ProgramMutants, two_slots_exchanged) {
  for (const Programs& programs : two_lane_programs()) {
    if (programs.front().name != "matmul_reduce_scatter pipelined") continue;
    for (int rank = 0; rank < static_cast<int>(programs.size()); ++rank) {
      const auto& roots = programs[static_cast<std::size_t>(rank)].roots;
      const auto slot = [&](int number) {
        return static_cast<program::RootId>(
            std::find_if(roots.begin(), roots.end(),
                         [&](const auto& root) { return root.name == fmt::format("slot {}", number); }) -
            roots.begin());
      };
      for (const std::size_t get : find(programs, rank, of_kind(StepKind::kGet))) {
        Programs mutant = programs;
        Step& step = steps_of(mutant, rank)[get];
        step.from.root = slot(1 - step.slot);
        expect_caught(mutant, {kNotOrdered, kNotWritten},
                      text_of(programs, rank, get) + " of the other slot");
      }
      for (std::size_t i = 0; i < roots.size(); ++i) {
        if (!roots[i].name.starts_with("partial for")) continue;
        Programs mutant = programs;
        auto& own = mutant[static_cast<std::size_t>(rank)].roots;
        const bool is_first = own[i].offset_bytes == 0;
        own[i].offset_bytes = own[static_cast<std::size_t>(slot(is_first ? 1 : 0))].offset_bytes;
        expect_caught(mutant, {kNotOrdered, kNotWritten},
                      fmt::format("{} of rank {} in the other slot", roots[i].name, rank));
      }
    }
  }
}

TEST(ProgramMutants, a_missing_word) {
  for (const Natives& natives : all_native_programs())
    expect_each_needed(natives.programs, of_kind(StepKind::kWriteWord), {kStuck});
}

TEST(ProgramMutants, a_word_before_its_data) {
  for (const auto& [programs, consumes, waiter] : all_native_programs()) {
    for (int rank = 0; rank < static_cast<int>(programs.size()); ++rank) {
      const auto& steps = programs[static_cast<std::size_t>(rank)].steps;
      for (const std::size_t word : find(programs, rank, of_kind(StepKind::kWriteWord))) {
        const bool has_more =
            steps[word + 1].kind == StepKind::kPut && steps[word + 1].peer == steps[word].peer;
        if (steps[word].peer == waiter || (!consumes && has_more)) continue;
        Programs mutant = programs;
        std::swap(steps_of(mutant, rank)[word - 1], steps_of(mutant, rank)[word]);
        expect_caught(mutant, {kNotOrdered, kNotWritten}, text_of(programs, rank, word) + " too early");
      }
    }
  }
}

// Also where nothing is read behind it: the rank would write, two calls later, what others still read.
TEST(ProgramMutants, a_missing_await) {
  int num_awaits = 0;
  for (const Natives& natives : all_native_programs()) {
    expect_each_needed(natives.programs, of_kind(StepKind::kAwait), {kNotOrdered, kNotWritten, kStillUsed});
    if (natives.waiter >= 0)
      num_awaits +=
          static_cast<int>(find(natives.programs, natives.waiter, of_kind(StepKind::kAwait)).size());
  }
  EXPECT_GT(num_awaits, 0);
}

TEST(ProgramMutants, data_that_does_not_come) {
  for (const Natives& natives : all_native_programs()) {
    expect_each_needed(
        natives.programs,
        [&](const Step& step) { return step.kind == StepKind::kPut && step.peer != natives.waiter; },
        {kNotWritten});
  }
  for (const Programs& programs : two_lane_programs()) {
    // What an earlier round has written stands in for what does not come.
    const auto takes_later = [](const Step& step) {
      return step.label == trace::StepKind::kTakeSum && step.slot > 0;
    };
    if (!find(programs, 0, takes_later).empty()) continue;
    expect_each_needed(programs,
                       [&](const Step& step) {
                         if (step.kind != StepKind::kGet && step.kind != StepKind::kCopy) return false;
                         return programs.front().roots[static_cast<std::size_t>(step.to.root)].space !=
                                program::Space::kCaller;
                       },
                       {kNotWritten});
  }
}

/// Without products that begin early, which another check refuses where something else is wrong.
Programs begun_late(Programs programs) {
  for (program::Program& program : programs) {
    for (program::Product& product : program.products) {
      if (product.arrival) product.arrival->begins_early = false;
    }
  }
  return programs;
}

// Of recorded calls, whose words tell of no epoch: what came in the call before looks like what comes now.
TEST(ProgramMutants, words_that_are_not_reset_in_time) {
  for (const Natives& natives : native_programs(true)) {
    const Programs& programs = natives.programs;
    ASSERT_TRUE(program::verify(programs));
    Programs without_any = programs;
    Programs only_barriers = programs;
    Programs of_one_word = programs;
    Programs behind_a_nap = programs;
    for (int rank = 0; rank < static_cast<int>(programs.size()); ++rank) {
      const std::size_t reset = find(programs, rank, of_kind(StepKind::kReset)).at(0);
      const std::string text = text_of(programs, rank, reset);
      Programs late = begun_late(programs);
      auto& steps = steps_of(late, rank);
      const Step moved = steps[reset];
      steps.erase(steps.begin() + static_cast<std::ptrdiff_t>(reset));
      steps.push_back(moved);
      expect_caught(late, {kNotOrdered, kStuck, kNotBehindCaller, kNotWritten}, text + " at the end");
      without_any = without(without_any, rank, reset);
      steps_of(only_barriers, rank)[reset].kind = StepKind::kBarrier;
      steps_of(only_barriers, rank)[reset].to = {};
      steps_of(of_one_word, rank)[reset].to = program::part_of(moved.to.root, 0, 0, 1);
      auto& napping = steps_of(behind_a_nap, rank);
      napping.insert(napping.begin() + static_cast<std::ptrdiff_t>(reset) + 1, {.kind = StepKind::kNap});
    }
    expect_caught(without_any, {kNotReset}, "no resets");
    expect_caught(only_barriers, {kNotReset}, "barriers in place of resets");
    expect_caught(of_one_word, {kNotReset}, "resets of one word");
    if (natives.consumes)
      expect_caught(behind_a_nap, {kNotBehindReset}, "products that begin early behind something else");
  }
}

// The barrier of the reset orders what a product does that begins behind it, and not what it does beside it.
TEST(ProgramMutants, an_early_product_whose_own_shard_a_peer_has_just_written) {
  fused::GatherProblem problem = test::small_gather(2, false);
  problem.aligns_own = true;
  problem.is_capturing = true;
  problem.first_consumed = 0;
  const Programs programs = programs_of(&fused::build_native_gather, problem);
  ASSERT_TRUE(program::verify(programs));
  Programs mutant = programs;
  for (int rank = 0; rank < 2; ++rank) {
    auto& steps = steps_of(mutant, rank);
    const auto reset = static_cast<std::ptrdiff_t>(find(programs, rank, of_kind(StepKind::kReset)).at(0));
    const auto& roots = mutant[static_cast<std::size_t>(rank)].roots;
    const auto root = [&](std::string_view name) {
      return static_cast<program::RootId>(
          std::find_if(roots.begin(), roots.end(), [&](const auto& one) { return one.name == name; }) -
          roots.begin());
    };
    const program::RootId own = root("own rows of the inbox");
    const std::int64_t rows = roots[static_cast<std::size_t>(own)].sizes[0];
    if (rank == 1)
      steps.insert(steps.begin() + reset, {.kind = StepKind::kPut,
                                           .peer = 0,
                                           .from = program::all_of(own),
                                           .to = program::part_of(root("inbox rows"), 0, 0, rows)});
    steps.insert(steps.begin() + reset, {.kind = StepKind::kBarrier, .channel = 2});
  }
  EXPECT_TRUE(program::verify(begun_late(mutant)));
  expect_caught(mutant, {kNotOrdered}, "a put before the barrier that an early product does not await");
}

// What does not fit is refused before anything runs.
TEST(ProgramMutants, a_program_that_is_wrong_by_itself) {
  fused::GatherProblem problem = test::small_gather(3);
  problem.copied = 1;
  const Programs programs = programs_of(&fused::build_pipelined_gather, problem);
  ASSERT_TRUE(program::verify(programs));
  const auto get = find(programs, 1, of_kind(StepKind::kGet)).front();
  const auto product = find(programs, 1, of_kind(StepKind::kProduct)).front();
  const auto publish = find(programs, 1, of_kind(StepKind::kCopy))[1];
  struct Fault {
    std::function<void(Programs& all, program::Program& own)> make;
    std::string_view said;
  };
  const Fault faults[] = {
      {[](Programs&, program::Program& own) { own.memory.scratch_bytes = 16; }, "are reserved"},
      {[](Programs& all, program::Program&) {
         for (program::Program& one : all) one.memory.workspace_bytes = 16;
       },
       "ends at byte 60, and 16 are reserved"},
      {[](Programs&, program::Program& own) { own.memory.workspace_bytes += 128; }, "not those of rank 0"},
      {[](Programs&, program::Program& own) { own.base_channel += 2; }, "not those of rank 0"},
      {[](Programs& all, program::Program&) { std::swap(all[0], all[2]); }, "program 0 of 3"},
      {[](Programs& all, program::Program&) { all.pop_back(); }, "program 0 of 2, for 3 ranks"},
      {[](Programs&, program::Program& own) { own.num_lanes = 17; }, "17 lanes, up to 16"},
      {[&](Programs&, program::Program& own) { own.steps[get].lane = 2; }, "a step on lane 2 of 2"},
      {[&](Programs&, program::Program& own) { own.steps[get].peer = 3; }, "a step for rank 3 of 3"},
      {[&](Programs&, program::Program& own) { own.steps[product].product = 99; },
       "a product that does not exist"},
      {[&](Programs&, program::Program& own) { own.steps[publish].to = program::part_of(99, 0, 0, 1); },
       "beyond its tensors"},
      {[&](Programs&, program::Program& own) {
         own.steps[publish].to = program::part_of(own.steps[publish].to.root, 0, 4, 2);
       },
       "beyond its tensors"},
      {[&](Programs&, program::Program& own) {
         own.steps[publish].to = program::part_of(own.steps[publish].to.root, 0, 0, 4);
       },
       "takes 15 elements to 12"}};
  for (const Fault& fault : faults) {
    Programs mutant = programs;
    fault.make(mutant, mutant[1]);
    expect_caught(mutant, {fault.said}, std::string(fault.said));
  }
}

}  // namespace
}  // namespace tandem
