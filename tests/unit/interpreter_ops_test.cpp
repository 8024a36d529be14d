#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "graph/interpreter/interpreter.hpp"
#include "support/interpreter_ranks.hpp"

namespace tandem::graph::interpreter {
namespace {

struct Input {
  std::vector<double> values;
  Dims sizes;
  DType dtype;
};

/// The one output of a program of one rank. `lines` come after the placeholders %x and %y, of which %y is
/// left out where it has no values.
std::vector<double> run(const std::string& lines, const std::map<std::string, Input>& inputs) {
  std::string text = "graph world 1 group \"0\" source \"\"\n";
  Inputs values;
  for (const auto& [name, input] : inputs) {
    values.emplace(name, HostTensor::from(std::span<const double>(input.values), input.sizes, input.dtype));
    constexpr std::string_view kNames[] = {"float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"};
    const std::string dtype(input.dtype == DType::kF64 ? "float64" : kNames[static_cast<int>(input.dtype)]);
    text += "%" + name + ": " + dtype + to_string(input.sizes) + " = placeholder\n";
  }
  text += lines + "%output: null = output([%out])\n";
  const graph::Graph program = testing::parsed(text);
  std::vector<double> result;
  const auto done = testing::on_cpu_ranks(1, [&](Group& group, Stream& stream) -> Result<void> {
    const graph::Node* const out = program.find("out");
    const auto table = run_graph(program, values, {out}, {group, stream, "0"});
    if (!table) return tl::unexpected(table.error());
    result = elements<double>(table->at(out).front()->view());
    return {};
  });
  EXPECT_TRUE(done) << done.error().to_string();
  return result;
}

using Values = std::vector<double>;

TEST(InterpreterOps, RoundOnceToTheTypeOfTheResult) {
  // 1 + 2^-9 is no bf16; f32 holds it.
  const Input one{{1}, {1}, DType::kBF16};
  const Input small{{0x1p-9}, {1}, DType::kBF16};
  EXPECT_EQ(run("%out: bfloat16[1] = aten.add.Tensor(%x, %y)\n", {{"x", one}, {"y", small}}), Values{1});
  const Input wide{{0x1p-9}, {1}, DType::kF32};
  EXPECT_EQ(run("%out: float32[1] = aten.add.Tensor(%x, %y)\n", {{"x", one}, {"y", wide}}),
            Values{1 + 0x1p-9});
}

TEST(InterpreterOps, PromoteAsPyTorchDoes) {
  const Input vector{{3, 5}, {2}, DType::kBF16};
  const Input number{{0.5}, {}, DType::kF32};
  // A tensor without dims does not widen one with dims, nor does a number.
  EXPECT_EQ(run("%out: bfloat16[2] = aten.mul.Tensor(%x, %y)\n", {{"x", vector}, {"y", number}}),
            (Values{1.5, 2.5}));
  EXPECT_EQ(run("%out: bfloat16[2] = aten.sub.Tensor(1, %x)\n", {{"x", vector}}), (Values{-2, -4}));
  const Input half{{1, 2}, {2}, DType::kF16};
  EXPECT_EQ(run("%out: float32[2] = aten.div.Tensor(%x, %y)\n", {{"x", half}, {"y", vector}}),
            (Values{static_cast<float>(1.0F / 3), static_cast<float>(2.0F / 5)}));
  const Input wide{{0x1p-40}, {1}, DType::kF64};
  EXPECT_EQ(run("%out: float64[1] = aten.add.Scalar(%x, 1)\n", {{"x", wide}}), Values{1 + 0x1p-40});
}

TEST(InterpreterOps, Broadcast) {
  const Input rows{{1, 2}, {2, 1}, DType::kF32};
  const Input columns{{10, 20, 30}, {3}, DType::kF32};
  EXPECT_EQ(run("%out: float32[2, 3] = aten.add.Tensor(%x, %y)\n", {{"x", rows}, {"y", columns}}),
            (Values{11, 21, 31, 12, 22, 32}));
  EXPECT_EQ(run("%out: float32[2, 2] = aten.expand.default(%x, [-1, 2])\n", {{"x", rows}}),
            (Values{1, 1, 2, 2}));
}

TEST(InterpreterOps, HandNaNsThrough) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const Input x{{nan, -1}, {2}, DType::kF32};
  const Values clamped = run("%out: float32[2] = aten.clamp_min.default(%x, 0.5)\n", {{"x", x}});
  EXPECT_TRUE(std::isnan(clamped[0]));
  EXPECT_EQ(clamped[1], 0.5);
  EXPECT_TRUE(std::isnan(run("%out: float32[] = aten.max.default(%x)\n", {{"x", x}})[0]));
}

TEST(InterpreterOps, Reduce) {
  const Input x{{1, 2, 3, 4, 5, 6}, {2, 3}, DType::kBF16};
  EXPECT_EQ(run("%out: bfloat16[3] = aten.sum.dim_IntList(%x, [0])\n", {{"x", x}}), (Values{5, 7, 9}));
  EXPECT_EQ(run("%out: bfloat16[2, 1] = aten.mean.dim(%x, [-1], true)\n", {{"x", x}}), (Values{2, 5}));
  EXPECT_EQ(run("%out: bfloat16[2, 1] = aten.amax.default(%x, [-1], true)\n", {{"x", x}}), (Values{3, 6}));
  EXPECT_EQ(run("%out: bfloat16[] = aten.sum.default(%x)\n", {{"x", x}}), Values{21});
}

TEST(InterpreterOps, MoveElements) {
  const Input x{{1, 2, 3, 4, 5, 6}, {2, 3}, DType::kF32};
  EXPECT_EQ(run("%out: float32[3, 2] = aten.permute.default(%x, [1, 0])\n", {{"x", x}}),
            (Values{1, 4, 2, 5, 3, 6}));
  EXPECT_EQ(run("%out: float32[4, 3] = aten.repeat.default(%x, [2, 1])\n", {{"x", x}}),
            (Values{1, 2, 3, 4, 5, 6, 1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(run("%s: (float32[2, 2], float32[2, 1]) = aten.split.Tensor(%x, 2, 1)\n"
                "%a: float32[2, 2] = \"<built-in function getitem>\"(%s, 0)\n"
                "%b: float32[2, 1] = \"<built-in function getitem>\"(%s, 1)\n"
                "%out: float32[2, 3] = aten.cat.default([%b, %a], 1)\n",
                {{"x", x}}),
            (Values{3, 1, 2, 6, 4, 5}));
  const Input f8{{1, 2}, {2}, DType::kF8E4M3};
  EXPECT_EQ(run("%out: uint8[2] = aten.view.dtype(%x, <torch.uint8>)\n", {{"x", f8}}), (Values{0x38, 0x40}));
}

TEST(InterpreterOps, Multiply) {
  const Input a{{1, 2, 3, 4}, {2, 2}, DType::kBF16};
  const Input bias{{100, 200}, {2}, DType::kBF16};
  EXPECT_EQ(run("%out: bfloat16[2, 2] = aten.addmm.default(%y, %x, %x)\n", {{"x", a}, {"y", bias}}),
            (Values{107, 210, 115, 222}));
  const Input f8{{1, 2, 3, 4}, {2, 2}, DType::kF8E4M3};
  const Input rows{{0.5, 2}, {2, 1}, DType::kF32};
  EXPECT_EQ(
      run("%t: float32[1, 2] = aten.permute.default(%y, [1, 0])\n"
          "%out: bfloat16[2, 2] = aten._scaled_mm.default(%x, %x, %y, %t, null, null, <torch.bfloat16>)\n",
          {{"x", f8}, {"y", rows}}),
      (Values{7 * 0.25, 10, 15, 22 * 4}));
}

}  // namespace
}  // namespace tandem::graph::interpreter
