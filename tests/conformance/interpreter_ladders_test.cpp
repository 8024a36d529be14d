#include <gtest/gtest.h>

#include <random>
#include <tandem/graph/fuse.hpp>
#include <tandem/graph/text.hpp>
#include <tandem/graph/verify.hpp>

#include "support/interpreter_ranks.hpp"
#include "support/random_ladders.hpp"

namespace tandem::graph::interpreter {
namespace {

std::vector<std::uint8_t> choices_of(unsigned seed) {
  std::mt19937 random(seed);
  std::vector<std::uint8_t> choices(64);
  for (std::uint8_t& choice : choices) choice = static_cast<std::uint8_t>(random() >> 8);
  return choices;
}

void expect_equal(const ExecutionReport& report) {
  for (const FusedOpResult& fused : report.fused) {
    for (const Difference& difference : fused.differences) EXPECT_TRUE(difference.ok()) << fused.node;
  }
  for (const OutputResult& output : report.outputs) {
    EXPECT_EQ(output.fault, "") << output.node;
    EXPECT_TRUE(!output.difference || output.difference->ok()) << output.node;
  }
}

/// How many collectives of a random program were fused. It computes what it computed before.
std::size_t fuse_and_compare(unsigned seed) {
  const std::string text = testing::random_ladder(choices_of(seed));
  SCOPED_TRACE(text);
  graph::Graph program = testing::parsed(text);
  const auto valid = graph::verify(program);
  EXPECT_TRUE(valid) << valid.error().to_string();
  const auto report = graph::fuse(program);
  EXPECT_TRUE(report) << report.error().to_string();
  const std::string rewritten = graph::to_text(program);
  SCOPED_TRACE(rewritten);
  const auto reports = testing::execute_on_ranks(text, rewritten, {.seed = seed, .compare = true});
  EXPECT_TRUE(reports) << reports.error().to_string();
  if (!report || !reports) return 0;
  for (const ExecutionReport& each : *reports) expect_equal(each);
  return report->fused.size();
}

// More of them: --gtest_filter=Ladders.* --gtest_shuffle --gtest_repeat=N takes other seeds in each round.
TEST(Ladders, OfRandomFormAreFusedToWhatTheyCompute) {
  constexpr unsigned kPrograms = 100;
  const auto first = static_cast<unsigned>(::testing::UnitTest::GetInstance()->random_seed()) * kPrograms;
  std::size_t num_fused = 0;
  for (unsigned i = 0; i < kPrograms && !HasFailure(); ++i) num_fused += fuse_and_compare(first + i);
  EXPECT_GE(num_fused, kPrograms / 10);
}

}  // namespace
}  // namespace tandem::graph::interpreter
