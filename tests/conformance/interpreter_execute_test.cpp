#include <gtest/gtest.h>

#include <tandem/graph/passes.hpp>
#include <tandem/graph/text.hpp>

#include "support/interpreter_ranks.hpp"

namespace tandem::graph::interpreter {
namespace {

using testing::execute_on_ranks;

// Gather along dim 1, two products of one gather, their sum scattered along dim 1: three ranks.
constexpr std::string_view kProgram = R"(graph world 3 group "0" source ""
%a: float32[2, 4, 6] = placeholder
%b: float32[6, 5] = placeholder
%c: float32[6, 5] = placeholder
%d: float32[5, 7] = placeholder
%g: float32[2, 12, 6] = tandem.all_gather.default(%a, 1, 3, "0")
%v: float32[24, 6] = aten.reshape.default(%g, [24, 6])
%p: float32[24, 5] = aten.mm.default(%v, %b)
%q: float32[24, 5] = aten.mm.default(%v, %c)
%r: float32[24, 7] = aten.mm.default(%p, %d)
%s: float32[24, 7] = aten.mm.default(%q, %d)
%t: float32[24, 7] = aten.add.Tensor(%r, %s)
%w: float32[2, 12, 7] = aten.reshape.default(%t, [2, 12, 7])
%x: float32[2, 4, 7] = tandem.reduce_scatter.default(%w, "sum", 1, 3, "0")
%output: (float32[2, 4, 7], float32[2, 12, 6]) = output([%x, %g])
)";

std::string rewritten(std::string_view text) {
  graph::Graph program = testing::parsed(text);
  const auto done = graph::run_passes(program, graph::all_passes());
  EXPECT_TRUE(done) << done.error().to_string();
  return graph::to_text(program);
}

TEST(Execute, ComparesARewrittenProgramWithItself) {
  const auto reports = execute_on_ranks(kProgram, rewritten(kProgram), {.seed = 5, .compare = true});
  ASSERT_TRUE(reports) << reports.error().to_string();
  ASSERT_EQ(reports->size(), 3U);
  for (const ExecutionReport& report : *reports) {
    ASSERT_EQ(report.fused.size(), 2U);
    for (const FusedOpResult& fused : report.fused) {
      EXPECT_EQ(fused.algorithm, Algorithm::kPipelined);
      EXPECT_FALSE(fused.trace.empty());
      ASSERT_FALSE(fused.differences.empty());
      for (const Difference& difference : fused.differences) EXPECT_EQ(difference.max_error, 0) << fused.node;
    }
    ASSERT_EQ(report.outputs.size(), 2U);
    for (const OutputResult& output : report.outputs) {
      EXPECT_EQ(output.fault, "");
      ASSERT_TRUE(output.difference);
      EXPECT_TRUE(output.difference->ok()) << output.node << " " << output.difference->max_error;
      EXPECT_GT(output.difference->largest, 0);
    }
    EXPECT_EQ(report.outputs[1].checksum, (*reports)[0].outputs[1].checksum)
        << "what is gathered is the same";
  }
}

TEST(Execute, FindsARewritingThatIsWrong) {
  std::string wrong = rewritten(kProgram);
  const auto replace = [&](std::string_view from, std::string_view to) {
    const auto at = wrong.find(from);
    ASSERT_NE(at, std::string::npos) << wrong;
    wrong.replace(at, from.size(), to);
  };
  replace("[%b, %c]", "[%b, %b]");
  const auto reports = execute_on_ranks(kProgram, wrong, {.seed = 5, .compare = true});
  ASSERT_TRUE(reports) << reports.error().to_string();
  for (const ExecutionReport& report : *reports) {
    EXPECT_FALSE(report.outputs[0].difference->ok());
    EXPECT_TRUE(report.outputs[1].difference->ok());
    for (const FusedOpResult& fused : report.fused) EXPECT_TRUE(fused.differences.back().ok());
  }
}

TEST(Execute, ABiasGradientIsMeasuredByWhatItAddsUp) {
  // The two programs differ by a step of bf16 in what is summed, and by all of the sum.
  constexpr std::string_view kBefore = R"(graph world 1 group "0" source ""
%a: bfloat16[64, 4] = placeholder
%n: bfloat16[64, 4] = aten.neg.default(%a)
%b: bfloat16[64, 4] = aten.mul.Tensor(%n, 1.0078125)
%c: bfloat16[128, 4] = aten.cat.default([%a, %b])
%x: bfloat16[4] = aten.sum.dim_IntList(%c, [0])
%output: null = output([%x])
)";
  std::string after(kBefore);
  after.replace(after.find("1.0078125"), 9, "1.0");
  const auto reports = execute_on_ranks(kBefore, after, {.seed = 2, .compare = true});
  ASSERT_TRUE(reports) << reports.error().to_string();
  const Difference& difference = *(*reports)[0].outputs[0].difference;
  EXPECT_GT(difference.max_error, 0);
  EXPECT_TRUE(difference.ok()) << difference.max_error << " " << difference.bound;
}

}  // namespace
}  // namespace tandem::graph::interpreter
