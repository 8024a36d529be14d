// Native gathers, and scatters, as their parts: the schedule without an agreement before each op, so that
// nothing but words and slots keeps the ranks in step, inboxes that grow and are renewed, and ranks that fall
// behind. Ranks are threads: under the thread sanitizer these are the tests of its memory order.
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "device/cuda/number_table.hpp"
#include "race/native_rank.hpp"
#include "race/told_rank.hpp"
#include "support/symm_rank.hpp"

namespace tandem::testing {
namespace {

// The word of an epoch beyond the table would be stored by a kernel, which would have to find room beside the
// products that fill the GPU and wait for it.
static_assert(symm::Inbox::kLongest < cuda::NumberTable::kSize);

using Shape = NativeRank::Shape;
using std::chrono::milliseconds;

Config quick() {
  Config config;
  config.log_level = LogLevel::kOff;
  config.op_timeout = milliseconds(20'000);
  config.rendezvous_timeout = milliseconds(20'000);
  return config;
}

class FusedInbox : public ::testing::TestWithParam<int> {
 protected:
  static int world() { return GetParam(); }
  static void run_on_all(const SymmProgram& program) { expect_ok(run_symm_ranks(world(), quick(), program)); }
};

// Inputs change with every op, and what an op has read is poisoned behind it.
TEST_P(FusedInbox, a_thousand_ops_in_a_row_with_nothing_but_words_between_the_ranks) {
  run_on_all([](SymmRank& rank) -> Result<void> {
    NativeRank native(rank.group, *rank.device, *rank.stream);
    std::mt19937 random(static_cast<unsigned>(rank.rank()));
    // One rank multiplies nothing: it has to wait all the same.
    const Shape shape{.columns = rank.rank() == 1 ? 0 : 2};
    for (int round = 0; round < 1000; ++round) {
      if (auto held = native.hold_now_and_then(random); !held) return held;
      if (auto ran = native.run_schedule(shape); !ran) return ran;
      if (auto poisoned = native.poison_slot(shape); !poisoned) return poisoned;
    }
    if (auto done = rank.finish(); !done) return done;
    EXPECT_EQ(native.wrong(), "");
    return {};
  });
}

TEST_P(FusedInbox, is_renewed_before_its_words_run_out) {
  run_on_all([](SymmRank& rank) -> Result<void> {
    constexpr int kLongest = 3;
    NativeRank native(rank.group, *rank.device, *rank.stream, kLongest);
    std::mt19937 random(static_cast<unsigned>(10 + rank.rank()));
    for (int round = 0; round < 20; ++round) {
      if (auto held = native.hold_now_and_then(random); !held) return held;
      if (auto ran = native.run_schedule({}); !ran) return ran;
      EXPECT_EQ(native.inbox().last().epoch, static_cast<std::uint32_t>(round % kLongest + 1));
      if (auto poisoned = native.poison_slot({}); !poisoned) return poisoned;
    }
    if (auto done = rank.finish(); !done) return done;
    EXPECT_EQ(native.wrong(), "");
    return {};
  });
}

// Sizes go up and down, so blocks are outgrown while ops that use them are queued, words skip ops, and other
// algorithms come between.
TEST_P(FusedInbox, sizes_and_algorithms_change_from_call_to_call) {
  run_on_all([](SymmRank& rank) -> Result<void> {
    NativeRank native(rank.group, *rank.device, *rank.stream, 7);
    std::mt19937 random(static_cast<unsigned>(20 + rank.rank()));
    std::mt19937 of_all(5);
    const auto up_to = [](std::mt19937& from, int most) { return 1 + static_cast<int>(from() % most); };
    for (int round = 0; round < 60; ++round) {
      const bool has_pieces = up_to(of_all, 6) == 1;
      const Shape shape{.rows = has_pieces ? 512 * up_to(of_all, 2) : up_to(of_all, 40),
                        .k = up_to(of_all, 4),
                        .columns = up_to(random, 3)};
      const int dice = up_to(of_all, 6);
      const Algorithm algorithm = dice == 1   ? Algorithm::kSerial
                                  : dice == 2 ? Algorithm::kPipelined
                                              : Algorithm::kNative;
      if (auto held = native.hold_now_and_then(random); !held) return held;
      if (auto ran = native.run(shape, algorithm); !ran) return ran;
      if (algorithm != Algorithm::kNative) continue;
      if (auto poisoned = native.poison_slot(shape); !poisoned) return poisoned;
    }
    if (auto done = rank.finish(); !done) return done;
    EXPECT_EQ(native.wrong(), "");
    return {};
  });
}

// Scatters, all-reduces and gathers share the slots and words. Some parts have no rows.
TEST_P(FusedInbox, scatters_in_a_row_with_nothing_but_words_between_the_ranks) {
  if (world() == 1) GTEST_SKIP() << "nobody to tell";
  run_on_all([](SymmRank& rank) -> Result<void> {
    NativeRank gathers(rank.group, *rank.device, *rank.stream);
    ToldRank scatters(rank.group, *rank.device, *rank.stream);
    std::mt19937 random(static_cast<unsigned>(30 + rank.rank()));
    std::mt19937 of_all(6);
    for (int round = 0; round < 300; ++round) {
      if (auto held = gathers.hold_now_and_then(random); !held) return held;
      const auto dice = of_all() % 6;
      const ToldRank::Shape shape{.rows = 1 + static_cast<std::int64_t>(of_all() % 12),
                                  .k = static_cast<std::int64_t>(of_all() % 4),
                                  .to_all = dice == 1,
                                  .num_products = dice == 2 ? 2 : 1};
      auto ran = dice == 0 ? gathers.run_schedule({}) : scatters.run_schedule(shape);
      if (!ran) return ran;
    }
    if (auto done = rank.finish(); !done) return done;
    EXPECT_EQ(scatters.wrong(), "");
    EXPECT_EQ(gathers.wrong(), "");
    return {};
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, FusedInbox, ::testing::Values(1, 2, 3, 4),
                         [](const auto& world) { return "cpu_" + std::to_string(world.param); });

/// Every rank's error of three ops, of which rank 1 leaves out or delays the last.
std::vector<std::string> errors_when_one_falls_behind(bool multiplies, const Config& config, bool skips) {
  std::vector<std::string> errors(2);
  static_cast<void>(run_symm_ranks(2, config, [&](SymmRank& rank) -> Result<void> {
    NativeRank native(rank.group, *rank.device, *rank.stream);
    const Shape shape{.columns = multiplies ? 2 : 0};
    for (int round = 0; round < 3; ++round) {
      if (skips && rank.rank() == 1 && round == 2) break;
      if (auto ran = native.run_schedule(shape); !ran) return ran;
    }
    Result<void> done = rank.finish();
    // A rank that left something out hears of it by the group.
    while (done) {
      done = rank.group.status();
      std::this_thread::sleep_for(milliseconds(1));
    }
    errors[static_cast<std::size_t>(rank.rank())] = done.error().to_string();
    return {};
  }));
  return errors;
}

void expect_chunk_is_named(const std::vector<std::string>& errors, const std::string& in) {
  for (const std::string& error : errors) {
    EXPECT_EQ(error.find("Timeout: rank 0 waited "), 0U) << error;
    EXPECT_NE(error.find("ms for rank 1 in " + in + " on chunk 1"), std::string::npos) << error;
    EXPECT_NE(error.find(": expected 3, seen "), std::string::npos) << error;
  }
}

TEST(FusedNativeLate, a_rank_that_leaves_an_op_out_is_named_with_its_chunk) {
  Config config = quick();
  config.op_timeout = milliseconds(800);
  expect_chunk_is_named(errors_when_one_falls_behind(true, config, true), "async_input_mm");
  expect_chunk_is_named(errors_when_one_falls_behind(false, config, true), "await_chunks");
}

TEST(FusedNativeLate, a_rank_whose_push_is_late_is_named_with_its_chunk) {
  Config config = quick();
  config.op_timeout = milliseconds(800);
  config.fault = "put:1:3:delay:1500";
  expect_chunk_is_named(errors_when_one_falls_behind(true, config, false), "async_input_mm");
  expect_chunk_is_named(errors_when_one_falls_behind(false, config, false), "await_chunks");
}

TEST(FusedNativeLate, a_delay_shorter_than_the_deadline_is_waited_for) {
  Config config = quick();
  config.fault = "put:*:2:delay:30,wait:0:3:delay:20";
  expect_ok(run_symm_ranks(3, config, [](SymmRank& rank) -> Result<void> {
    NativeRank native(rank.group, *rank.device, *rank.stream);
    for (int round = 0; round < 5; ++round) {
      if (auto ran = native.run({}, Algorithm::kNative); !ran) return ran;
    }
    if (auto done = rank.finish(); !done) return done;
    EXPECT_EQ(native.wrong(), "");
    return {};
  }));
}

// A peer that has left the group will not send any more.
TEST(FusedNativeLate, a_rank_that_left_is_named) {
  std::string error;
  static_cast<void>(run_symm_ranks(2, quick(), [&](SymmRank& rank) -> Result<void> {
    NativeRank native(rank.group, *rank.device, *rank.stream);
    if (auto ran = native.run_schedule({}); !ran) return ran;
    if (rank.rank() == 1) return rank.finish();
    if (auto ran = native.run_schedule({}); !ran) return ran;
    const auto done = rank.finish();
    error = done ? "none" : done.error().to_string();
    return {};
  }));
  EXPECT_EQ(error.find("PeerLost: rank 0 waited in async_input_mm on chunk 1 for rank 1"), 0U) << error;
}

}  // namespace
}  // namespace tandem::testing
