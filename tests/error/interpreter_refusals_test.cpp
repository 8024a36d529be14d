#include <gtest/gtest.h>

#include "support/interpreter_ranks.hpp"

namespace tandem::graph::interpreter {
namespace {

struct Refusal {
  std::string lines;
  ErrorCode code;
  std::string text;
};

constexpr std::string_view kHead = R"(graph world 1 group "0" source ""
%a: bfloat16[4, 4] = placeholder
%i: int64[4] = placeholder
)";
constexpr std::string_view kTail = "%output: null = output([%x])\n";

void expect(std::span<const Refusal> refusals) {
  for (const Refusal& refusal : refusals) {
    const std::string text = std::string(kHead) + refusal.lines + std::string(kTail);
    const auto reports = testing::execute_on_ranks(text, text, {});
    ASSERT_FALSE(reports) << refusal.lines;
    EXPECT_EQ(reports.error().code(), refusal.code) << refusal.lines;
    EXPECT_TRUE(reports.error().text().starts_with(refusal.text)) << reports.error().text();
  }
}

TEST(Refusals, NameTheNode) {
  const Refusal refusals[] = {
      {"%x: bfloat16[4, 4] = my.op(%a)\n", ErrorCode::kUnsupported, "node 'x': my.op cannot be executed"},
      {"%x: complex64[4] = my.op(%a)\n", ErrorCode::kUnsupported, "node 'x': tandem has no type complex64"},
      {"%x: bfloat16[4, 4] = graphsafe_run_with_rng_state(<aten.dropout.default>, %a)\n",
       ErrorCode::kUnsupported,
       "node 'x': the state of a generator for <aten.dropout.default> cannot be executed, only for "
       "aten._scaled_dot_product_cudnn_attention.default"},
      {"%f: float8_e4m3fn[4, 4] = prims.convert_element_type.default(%a, <torch.float8_e4m3fn>)\n"
       "%x: float8_e4m3fn[4, 4] = aten.abs.default(%f)\n",
       ErrorCode::kUnsupported, "node 'x' (aten.abs.default): computes no elements of f8e4m3"},
      {"%x: bfloat16[4, 4] = aten.bitwise_and.Tensor(%a, %a)\n", ErrorCode::kUnsupported,
       "node 'x' (aten.bitwise_and.Tensor): an op on the bits of bf16, need integers or truth values"},
      {"%x: bfloat16[4, 4] = aten.dropout.default(%a, 0.1, true)\n", ErrorCode::kUnsupported,
       "node 'x': dropout cannot be executed, only of 0"},
      {"%j: int64[4] = aten.add.Tensor(%i, 100)\n%x: bfloat16[4, 4] = aten.embedding.default(%a, %j)\n",
       ErrorCode::kInvalidArgument, "node 'x' (aten.embedding.default): index 10"},
      {"%x: bfloat16[4, 4] = aten.index.Tensor(%a, [%a])\n", ErrorCode::kUnsupported,
       "node 'x' (aten.index.Tensor): an index of bf16, need whole numbers"},
      {"%x: bfloat16[4, 4] = aten.gelu.default(%a, approximate=\"erf\")\n", ErrorCode::kInvalidArgument,
       "node 'x' (aten.gelu.default): gelu is approximated by something else than tanh"},
      {"%x: (bfloat16[1, 4], bfloat16[2, 4]) = aten.split_with_sizes.default(%a, [1, 2])\n",
       ErrorCode::kInvalidArgument,
       "node 'x' (aten.split_with_sizes.default): splits dim 0 of [4, 4] into parts of 1, 2"},
      {"%c: bfloat16[4, 4] = aten.copy_.default(%a, %a)\n%x: bfloat16[4, 4] = aten.neg.default(%a)\n",
       ErrorCode::kUnsupported, "node 'c' (aten.copy_.default): writes 'a', which 'x' reads later"},
      {"%x: bfloat16[4, 4] = _c10d_functional.all_reduce.default(%a, \"band\", \"0\")\n",
       ErrorCode::kUnsupported,
       "node 'x' (_c10d_functional.all_reduce.default): all_reduce 'band' of bf16 cannot be executed, only "
       "sum, "
       "product, max and min, or avg of floats"},
      {"%x: bfloat16[4, 4] = _c10d_functional.all_to_all_single.default(%a, [3], [4], \"0\")\n",
       ErrorCode::kInvalidArgument,
       "node 'x' (_c10d_functional.all_to_all_single.default): sends [4] rows of [4, 4] to 1 ranks, of which "
       "rank "
       "0 takes [3]"},
      {"%x: bfloat16[4, 4] = aten.add.Tensor(%a, %a, alpha=2)\n", ErrorCode::kUnsupported,
       "node 'x' (aten.add.Tensor): alpha is 2, can only be executed with 1"},
      {"%x: bfloat16[4, 4] = _c10d_functional.all_reduce.default(%a, \"sum\", \"7\")\n",
       ErrorCode::kUnsupported,
       "node 'x' (_c10d_functional.all_reduce.default): a collective of group '7', of which the file does "
       "not say how many ranks it has; capture the program again"},
      {"%x: float32[4, 4] = aten.neg.default(%a)\n", ErrorCode::kInvalidArgument,
       "node 'x' (aten.neg.default): result 0 is bf16 [4, 4] strides [4, 1] on cpu:0, but the graph says "
       "float32[4, 4]"},
  };
  expect(refusals);
}

TEST(Refusals, OfSizesAndConstantsSayWhatTheFileLacks) {
  const Refusal refusals[] = {
      {"%n: null = placeholder\n%x: bfloat16[4, 4] = aten.split.Tensor(%a, %n)\n",
       ErrorCode::kInvalidArgument,
       "node 'x' (aten.split.Tensor): an argument is %n, need a whole number; the file has no hint of it"},
      {"%x: bfloat16[4] = aten.full.default([{\"u0\" null}], 0.0)\n", ErrorCode::kInvalidArgument,
       "node 'x' (aten.full.default): an argument is {\"u0\" null}, need a whole number; the file has no "
       "hint"},
      {"%x: null = \"<built-in function floordiv>\"(4, 0)\n", ErrorCode::kUnsupported,
       "node 'x' (<built-in function floordiv>): 4 / 0 is no size"},
      {"%x: bfloat16[4, 4] = aten._scaled_mm_v2.default(%a, %a, [%a], [4], [0], [%a], [5], [0])\n",
       ErrorCode::kUnsupported,
       "node 'x' (aten._scaled_mm_v2.default): scales by recipes [4] and swizzles [0], only 0 (tensor-wise)"},
      {"%x: float32[2] = get_attr value [1.0]\n", ErrorCode::kInvalidArgument,
       "'x' has 1 elements in the file, need 2"},
      {"%x: int64[1] = get_attr value [1.5]\n", ErrorCode::kInvalidArgument,
       "'x' has the element 1.5, need one of i64"},
  };
  expect(refusals);
}

TEST(Refusals, AnotherNumberOfRanks) {
  const graph::Graph program = testing::parsed(std::string(kHead) + "%output: null = output([%a])\n");
  const auto done = testing::on_cpu_ranks(2, [&](Group& group, Stream& stream) -> Result<void> {
    const auto report = execute(program, program, {}, group, stream);
    if (!report) return tl::unexpected(report.error());
    return {};
  });
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().text(), "the program is of 1 ranks, got 2");
}

}  // namespace
}  // namespace tandem::graph::interpreter
