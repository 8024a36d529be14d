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

TEST(Refusals, NameTheNode) {
  const Refusal refusals[] = {
      {"%x: bfloat16[4, 4] = my.op(%a)\n", ErrorCode::kUnsupported, "node 'x': my.op cannot be executed"},
      {"%x: complex64[4] = my.op(%a)\n", ErrorCode::kUnsupported, "node 'x': tandem has no type complex64"},
      {"%x: bfloat16[4, 4] = graphsafe_run_with_rng_state(<aten.dropout.default>, %a)\n",
       ErrorCode::kUnsupported,
       "node 'x': the state of a generator for <aten.dropout.default> cannot be executed, only for "
       "aten._scaled_dot_product_cudnn_attention.default"},
      {"%x: int64[4] = aten.abs.default(%i)\n", ErrorCode::kUnsupported,
       "node 'x' (aten.abs.default): computes f64, f32, f16 and bf16 only, got i64"},
      {"%x: bfloat16[4, 4] = aten.add.Tensor(%a, %a, alpha=2)\n", ErrorCode::kUnsupported,
       "node 'x' (aten.add.Tensor): alpha is 2, can only be executed with 1"},
      {"%x: bfloat16[4, 4] = _c10d_functional.all_reduce.default(%a, \"sum\", \"7\")\n",
       ErrorCode::kUnsupported,
       "node 'x' (_c10d_functional.all_reduce.default): a collective of group '7', but the program runs on "
       "group '0'"},
      {"%x: float32[4, 4] = aten.neg.default(%a)\n", ErrorCode::kInvalidArgument,
       "node 'x' (aten.neg.default): result 0 is bf16 [4, 4] strides [4, 1] on cpu:0, but the graph says "
       "float32[4, 4]"},
  };
  for (const Refusal& refusal : refusals) {
    const std::string text = std::string(kHead) + refusal.lines + std::string(kTail);
    const auto reports = testing::execute_on_ranks(text, text, {});
    ASSERT_FALSE(reports) << refusal.lines;
    EXPECT_EQ(reports.error().code(), refusal.code) << refusal.lines;
    EXPECT_EQ(reports.error().text(), refusal.text);
  }
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
