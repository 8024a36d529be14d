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

TEST(Execute, EachRankStandsForAllRanksOfAnotherGroup) {
  const std::string program = R"(graph world 2 group "0" source ""
group "1" ranks 3 "mesh_dp"
%a: bfloat16[3, 2] = placeholder
%g: bfloat16[9, 2] = _c10d_functional.all_gather_into_tensor.default(%a, 3, "1")
%c: bfloat16[9, 2] = aten.cat.default([%a, %a, %a])
%r: bfloat16[1, 2] = _c10d_functional.reduce_scatter_tensor.default(%a, "sum", 3, "1")
%t: bfloat16[3, 2] = aten.mul.Tensor(%a, 3)
%s: bfloat16[1, 2] = aten.slice.Tensor(%t, 0, 0, 1)
%v: bfloat16[3, 2] = _c10d_functional.all_reduce.default(%a, "avg", "1")
%w: bfloat16[3, 2] = _c10d_functional.all_reduce.default(%a, "max", "1")
%x: bfloat16[3, 2] = _c10d_functional.broadcast.default(%a, 2, "1")
%y: bfloat16[3, 2] = _c10d_functional.all_to_all_single.default(%a, [1, 1, 1], [1, 1, 1], "1")
%f: bfloat16[1, 2] = aten.slice.Tensor(%a, 0, 0, 1)
%z: bfloat16[3, 2] = aten.cat.default([%f, %f, %f])
%output: null = output([%g, %c, %r, %s, %v, %a, %w, %a, %x, %a, %y, %z])
)";
  const auto reports = execute_on_ranks(program, program, {});
  ASSERT_TRUE(reports) << reports.error().to_string();
  for (const ExecutionReport& report : *reports) {
    for (std::size_t i = 0; i < report.outputs.size(); i += 2) {
      EXPECT_EQ(report.outputs[i].checksum, report.outputs[i + 1].checksum) << report.outputs[i].node;
    }
  }
  EXPECT_NE((*reports)[0].outputs[0].checksum, (*reports)[1].outputs[0].checksum);
  const std::map<std::string, std::int64_t> want{{"1", 3}};
  EXPECT_EQ(other_groups(testing::parsed(program)), want);
}

TEST(Execute, AnAttributeHasTheValueThatTheFileSays) {
  const std::string program = R"(graph world 1 group "0" source ""
%w: bfloat16[2] = get_attr value [1.5, 1.5]
%m: bool[2] = get_attr value [true, true]
%large: int64[2] = get_attr value [9007199254740993, 9007199254740993]
%v: bfloat16[2] = aten.full.default([2], 1.5, dtype=<torch.bfloat16>)
%n: bool[2] = aten.full.default([2], true, dtype=<torch.bool>)
%huge: int64[2] = aten.full.default([2], 9007199254740993, dtype=<torch.int64>)
%unlike: bfloat16[2] = get_attr value null
%output: null = output([%w, %v, %m, %n, %large, %huge, %unlike])
)";
  const auto reports = execute_on_ranks(program, program, {});
  ASSERT_TRUE(reports) << reports.error().to_string();
  const auto& outputs = reports->front().outputs;
  for (const std::size_t i : {0U, 2U, 4U}) EXPECT_EQ(outputs[i].checksum, outputs[i + 1].checksum) << i;
  EXPECT_NE(outputs[6].checksum, outputs[0].checksum);
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

/// The outputs of all ranks for a program of two, which is also its own rewriting.
std::vector<std::vector<OutputResult>> outputs_of_two(const std::string& lines) {
  const std::string text = "graph world 2 group \"0\" source \"\"\n" + lines;
  const auto reports = execute_on_ranks(text, text, {.seed = 4, .compare = true});
  EXPECT_TRUE(reports) << reports.error().to_string();
  std::vector<std::vector<OutputResult>> all;
  if (reports) {
    for (const ExecutionReport& report : *reports) all.push_back(report.outputs);
  }
  return all;
}

TEST(Execute, CoalescedCollectivesAreThoseOfEachTensor) {
  const auto ranks = outputs_of_two(R"(%a: bfloat16[4, 2] = placeholder
%b: bfloat16[2, 6] = placeholder
%g: (bfloat16[8, 2], bfloat16[4, 6]) =
  _c10d_functional.all_gather_into_tensor_coalesced.default([%a, %b], 2, "0")
%g0: bfloat16[8, 2] = "<built-in function getitem>"(%g, 0)
%g1: bfloat16[4, 6] = "<built-in function getitem>"(%g, 1)
%w: (bfloat16[8, 2], bfloat16[4, 6]) = _c10d_functional.wait_tensors.default([%g0, %g1])
%w1: bfloat16[4, 6] = "<built-in function getitem>"(%w, 1)
%h: bfloat16[4, 6] = _c10d_functional.all_gather_into_tensor.default(%b, 2, "0")
%r: (bfloat16[2, 2], bfloat16[1, 6]) =
  _c10d_functional.reduce_scatter_tensor_coalesced.default([%a, %b], "sum", 2, "0")
%r1: bfloat16[1, 6] = "<built-in function getitem>"(%r, 1)
%s: bfloat16[1, 6] = _c10d_functional.reduce_scatter_tensor.default(%b, "sum", 2, "0")
%t: (bfloat16[4, 2], bfloat16[2, 6]) = _c10d_functional.all_reduce_coalesced.default([%a, %b], "max", "0")
%t1: bfloat16[2, 6] = "<built-in function getitem>"(%t, 1)
%u: bfloat16[2, 6] = _c10d_functional.all_reduce.default(%b, "max", "0")
%output: null = output([%w1, %h, %r1, %s, %t1, %u])
)");
  ASSERT_EQ(ranks.size(), 2U);
  for (const auto& outputs : ranks) {
    ASSERT_EQ(outputs.size(), 6U);
    for (std::size_t i = 0; i < outputs.size(); i += 2) {
      EXPECT_EQ(outputs[i].checksum, outputs[i + 1].checksum) << outputs[i].node;
    }
  }
}

TEST(Execute, LowContentionCollectivesAreThoseOfPyTorch) {
  const std::string head = R"(graph world 3 group "0" source ""
%a: float32[2, 5] = placeholder
%b: float32[6, 5] = placeholder
)";
  const std::string end = R"(%u: float32[6, 5] = _c10d_functional.wait_tensor.default(%g)
%v: float32[2, 5] = _c10d_functional.wait_tensor.default(%r)
%output: (float32[6, 5], float32[2, 5]) = output([%u, %v])
)";
  for (const std::string reduction : {"sum", "avg"}) {
    const auto program =
        head + "%g: float32[6, 5] = _c10d_functional.all_gather_into_tensor.default(%a, 3, \"0\")\n" +
        "%r: float32[2, 5] = _c10d_functional.reduce_scatter_tensor.default(%b, \"" + reduction +
        "\", 3, \"0\")\n" + end;
    const auto beside = head +
                        "%g: float32[6, 5] = symm_mem._low_contention_all_gather.default(%a, \"0\")\n" +
                        "%r: float32[2, 5] = symm_mem._low_contention_reduce_scatter.default(%b, \"" +
                        reduction + "\", \"0\")\n" + end;
    const auto reports = execute_on_ranks(program, beside, {.seed = 5, .compare = true});
    ASSERT_TRUE(reports) << reports.error().to_string();
    for (const ExecutionReport& report : *reports) {
      for (const OutputResult& output : report.outputs) {
        ASSERT_TRUE(output.difference) << output.not_compared;
        EXPECT_EQ(output.difference->max_error, 0) << output.node;
        EXPECT_GT(output.difference->largest, 0);
      }
    }
  }
}

TEST(Execute, AnAllToAllSendsEachRankItsRows) {
  // The rows for rank 0 are the first two: gathered, the halves of both ranks.
  const auto ranks = outputs_of_two(R"(%a: float32[4, 3] = placeholder
%x: float32[4, 3] = _c10d_functional.all_to_all_single.default(%a, [2, 2], [2, 2], "0")
%y: float32[4, 3] = _c10d_functional.all_to_all_single.default(%x, [2, 2], [2, 2], "0")
%g: float32[8, 3] = _c10d_functional.all_gather_into_tensor.default(%a, 2, "0")
%h: float32[2, 3] = aten.slice.Tensor(%g, 0, 0, 2)
%i: float32[2, 3] = aten.slice.Tensor(%g, 0, 4, 6)
%of0: float32[4, 3] = aten.cat.default([%h, %i])
%output: null = output([%x, %of0, %y, %a])
)");
  ASSERT_EQ(ranks.size(), 2U);
  EXPECT_EQ(ranks[0][0].checksum, ranks[0][1].checksum);
  EXPECT_NE(ranks[1][0].checksum, ranks[1][1].checksum);
  for (const auto& outputs : ranks) EXPECT_EQ(outputs[2].checksum, outputs[3].checksum) << "there and back";
}

TEST(Execute, ReducesIntegersExactly) {
  const auto ranks = outputs_of_two(R"(%one: int64[2] = aten.full.default([2], 9007199254740993)
%s: int64[2] = _c10d_functional.all_reduce.default(%one, "sum", "0")
%d: int64[2] = aten.sub.Tensor(%s, 18014398509481984)
%two: int64[2] = aten.full.default([2], 2)
%p: int64[2] = _c10d_functional.all_reduce.default(%d, "product", "0")
%q: int64[2] = aten.mul.Tensor(%two, %two)
%m: int64[2] = _c10d_functional.all_reduce.default(%p, "min", "0")
%output: null = output([%d, %two, %p, %q, %m])
)");
  ASSERT_EQ(ranks.size(), 2U);
  for (const auto& outputs : ranks) {
    EXPECT_EQ(outputs[0].checksum, outputs[1].checksum);
    EXPECT_EQ(outputs[2].checksum, outputs[3].checksum);
    EXPECT_EQ(outputs[4].checksum, outputs[3].checksum);
    EXPECT_EQ(outputs[0].not_compared, "is 2 everywhere");
  }
}

constexpr std::string_view kConstantOrNot = R"(graph world 1 group "0" source ""
%a: float32[4] = placeholder
%z: float32[4] = aten.mul.Tensor(%a, 0.0)
%x: float32[4] = aten.add.Tensor(%z, 3.0)
%y: float32[4] = aten.add.Tensor(%a, 1.0)
%output: null = output([%x, %y])
)";

TEST(Execute, WhatIsConstantInBothProgramsIsNotCompared) {
  const auto reports = execute_on_ranks(kConstantOrNot, kConstantOrNot, {.seed = 1, .compare = true});
  ASSERT_TRUE(reports) << reports.error().to_string();
  const auto& outputs = (*reports)[0].outputs;
  EXPECT_EQ(outputs[0].not_compared, "is 3 everywhere");
  EXPECT_FALSE(outputs[0].difference);
  EXPECT_EQ(outputs[1].not_compared, "");
  ASSERT_TRUE(outputs[1].difference);
  EXPECT_TRUE(outputs[1].difference->ok());
}

TEST(Execute, WhatIsConstantInOneProgramIsCompared) {
  for (const std::string_view change : {"aten.mul.Tensor(%a, 1.0)", "aten.full.default([4], 1.0)"}) {
    std::string other(kConstantOrNot);
    constexpr std::string_view kFrom = "aten.mul.Tensor(%a, 0.0)";
    other.replace(other.find(kFrom), kFrom.size(), change);
    for (const bool is_rewritten : {false, true}) {
      const auto reports = is_rewritten
                               ? execute_on_ranks(kConstantOrNot, other, {.seed = 1, .compare = true})
                               : execute_on_ranks(other, kConstantOrNot, {.seed = 1, .compare = true});
      ASSERT_TRUE(reports) << reports.error().to_string();
      const auto& output = (*reports)[0].outputs[0];
      EXPECT_EQ(output.not_compared, "");
      ASSERT_TRUE(output.difference) << change;
      EXPECT_FALSE(output.difference->ok()) << change;
    }
  }
}

TEST(Execute, AnInfinityIsAFaultUnlessTheProgramWritesIt) {
  // 1e39 is no f32.
  constexpr std::string_view kText = R"(graph world 1 group "0" source ""
%a: float32[64] = placeholder
%f: float32[] = aten.full.default([], -infinity, dtype=<torch.float32>)
%m: bool[64] = aten.lt.Scalar(%a, 0.0)
%x: float32[64] = aten.where.self(%m, %a, %f)
%y: float32[64] = aten.mul.Tensor(%a, 1e39)
%output: null = output([%x, %y])
)";
  const auto reports = execute_on_ranks(kText, kText, {.seed = 1, .compare = true});
  ASSERT_TRUE(reports) << reports.error().to_string();
  const auto& outputs = (*reports)[0].outputs;
  EXPECT_EQ(outputs[0].fault, "");
  EXPECT_TRUE(outputs[0].difference->ok());
  EXPECT_LT(outputs[0].difference->largest, 1) << "of what is finite";
  EXPECT_EQ(outputs[1].fault, "is not finite");
}

TEST(Execute, TensorsOfTheProgramAreMadeAsInputsAre) {
  const auto ranks = outputs_of_two(R"(%table: bfloat16[4, 3] = get_attr
%ids: int64[5] = placeholder
%x: bfloat16[5, 3] = aten.embedding.default(%table, %ids)
%output: null = output([%x])
)");
  ASSERT_EQ(ranks.size(), 2U);
  EXPECT_TRUE(ranks[0][0].difference);
}

TEST(Execute, ABroadcastIsTheValueOfOneRank) {
  const auto ranks = outputs_of_two(R"(%a: bfloat16[3, 2] = placeholder
%x: bfloat16[3, 2] = _c10d_functional.broadcast.default(%a, 1, "0")
%output: null = output([%x, %a])
)");
  ASSERT_EQ(ranks.size(), 2U);
  for (const auto& outputs : ranks) EXPECT_EQ(outputs[0].checksum, ranks[1][1].checksum);
  EXPECT_NE(ranks[0][1].checksum, ranks[1][1].checksum);
}

TEST(Execute, AWriteToAnInputIsAnOutput) {
  constexpr std::string_view kText = R"(graph world 1 group "0" source ""
%cache: bfloat16[4, 2] = placeholder
%a: bfloat16[1, 2] = placeholder
%n: bfloat16[1, 2] = aten.neg.default(%a)
%s: bfloat16[4, 2] = aten.slice_scatter.default(%cache, %n, 0, 1, 2)
%w: bfloat16[4, 2] = aten.copy_.default(%cache, %s)
%output: null = output([%n])
)";
  std::string wrong(kText);
  wrong.replace(wrong.find("0, 1, 2)"), 8, "0, 2, 3)");
  const auto reports = execute_on_ranks(kText, wrong, {.seed = 1, .compare = true});
  ASSERT_TRUE(reports) << reports.error().to_string();
  const auto& outputs = (*reports)[0].outputs;
  ASSERT_EQ(outputs.size(), 2U);
  EXPECT_EQ(outputs[1].node, "w");
  EXPECT_TRUE(outputs[0].difference->ok());
  EXPECT_FALSE(outputs[1].difference->ok());
}

TEST(Execute, TruthValuesMayDifferWhereAThresholdIsAStepAway) {
  // A few of 4096 elements are between the two thresholds; half are between 0 and 0.5.
  constexpr std::string_view kText = R"(graph world 1 group "0" source ""
%a: bfloat16[4096] = placeholder
%x: bool[4096] = aten.gt.Scalar(%a, 0.0)
%output: null = output([%x])
)";
  const auto share = [&](std::string_view threshold) {
    std::string other(kText);
    other.replace(other.find("0.0"), 3, threshold);
    const auto reports = execute_on_ranks(kText, other, {.seed = 1, .compare = true});
    EXPECT_TRUE(reports) << reports.error().to_string();
    return *(*reports)[0].outputs[0].difference;
  };
  EXPECT_EQ(share("0.0").max_error, 0);
  EXPECT_GT(share("0.004").max_error, 0);
  EXPECT_TRUE(share("0.004").ok());
  EXPECT_NEAR(share("0.4").max_error, 0.4, 0.05);
  EXPECT_FALSE(share("0.4").ok());
}

TEST(Execute, ValuesKeepTheirSizeThroughDepth) {
  // Without norms: 40 layers of a product over 64 terms, and one over 64 terms of 2 ranks.
  std::string text = "%a0: bfloat16[4, 64] = placeholder\n";
  for (int i = 0; i < 40; ++i) {
    const std::string n = std::to_string(i);
    text += "%b" + n + ": bfloat16[64, 64] = placeholder\n%c" + n + ": bfloat16[64, 64] = placeholder\n%p" +
            n + ": bfloat16[4, 64] = aten.mm.default(%a" + n + ", %b" + n + ")\n%q" + n +
            ": bfloat16[4, 64] = aten.mm.default(%p" + n + ", %c" + n + ")\n%a" + std::to_string(i + 1) +
            ": bfloat16[4, 64] = _c10d_functional.all_reduce.default(%q" + n + ", \"sum\", \"0\")\n";
  }
  for (const auto& outputs : outputs_of_two(text + "%output: null = output([%a40])\n")) {
    EXPECT_GT(outputs[0].difference->largest, 1e-2);
    EXPECT_LT(outputs[0].difference->largest, 1e2);
  }
}

TEST(Execute, IndicesAreThoseOfWhatTheyIndex) {
  // Of 3 rows, behind a view and a mask of what is out of range; all three are found.
  const auto ranks = outputs_of_two(R"(%ids: int64[2, 32] = placeholder
%table: float32[3, 2] = placeholder
%zero: int64[] = aten.full.default([], 0)
%m: bool[2, 32] = aten.ge.Scalar(%ids, 3)
%w: int64[2, 32] = aten.where.self(%m, %zero, %ids)
%v: int64[64] = aten.reshape.default(%w, [64])
%x: float32[64, 2] = aten.embedding.default(%table, %v)
%any: bool[] = aten.any.default(%m)
%most: int64[] = aten.max.default(%ids)
%two: int64[] = aten.full.default([], 2)
%output: null = output([%ids, %x, %any, %most, %two])
)");
  ASSERT_EQ(ranks.size(), 2U);
  EXPECT_EQ(ranks[0][0].checksum, ranks[1][0].checksum) << "ids are the program's";
  EXPECT_EQ(ranks[0][3].checksum, ranks[0][4].checksum);
}

}  // namespace
}  // namespace tandem::graph::interpreter
