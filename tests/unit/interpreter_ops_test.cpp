#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "unit/interpreter_programs.hpp"

namespace tandem::graph::interpreter {
namespace {

using Input = testing::ProgramInput;
using testing::run_program;

using Values = std::vector<double>;

TEST(InterpreterOps, RoundOnceToTheTypeOfTheResult) {
  // 1 + 2^-9 is no bf16; f32 holds it.
  const Input one{{1}, {1}, DType::kBF16};
  const Input small{{0x1p-9}, {1}, DType::kBF16};
  EXPECT_EQ(run_program("%out: bfloat16[1] = aten.add.Tensor(%x, %y)\n", {{"x", one}, {"y", small}}),
            Values{1});
  const Input wide{{0x1p-9}, {1}, DType::kF32};
  EXPECT_EQ(run_program("%out: float32[1] = aten.add.Tensor(%x, %y)\n", {{"x", one}, {"y", wide}}),
            Values{1 + 0x1p-9});
}

TEST(InterpreterOps, ScaleProductsByRecipe) {
  const std::map<std::string, Input> inputs{{"a", {{1, 2, -3, 4}, {2, 2}, DType::kF8E4M3}},
                                            {"b", {{0.5, -1, 2, 1.5}, {2, 2}, DType::kF8E4M3}},
                                            {"s", {{2, 3}, {2, 1}, DType::kF32}},
                                            {"t", {{0.5, 4}, {2}, DType::kF32}},
                                            {"u", {{2}, {}, DType::kF32}}};
  EXPECT_EQ(
      run_program("%out: float32[2, 2] = aten._scaled_mm_v2.default(%a, %b, [%s], [1], [0], [%t], [1], [], "
                  "null, <torch.float32>)\n",
                  inputs),
      (Values{4.5, 16, 9.75, 108}));
  EXPECT_EQ(
      run_program("%out: bfloat16[2, 2] = aten._scaled_mm_v2.default(%a, %b, [%u], [0], [0], [%u], [0], [0], "
                  "%t, <torch.bfloat16>, [], true)\n",
                  inputs),
      (Values{18.5, 12, 26.5, 40}));
}

TEST(InterpreterOps, ComputeSizesAsPythonDoes) {
  const std::pair<std::string, double> sums[] = {
      {"\"<built-in function add>\"({\"s0\" 7}, -2)", 5},
      {"\"<built-in function sub>\"(7, -2)", 9},
      {"\"<built-in function mul>\"(7, -2)", -14},
      {"\"<built-in function floordiv>\"(7, -2)", -4},
      {"\"<built-in function floordiv>\"(7, 2)", 3},
      {"\"<built-in function mod>\"(7, -2)", -1},
      {"\"<built-in function mod>\"(-7, 2)", 1},
      {"aten.sym_size.int(%x, -1)", 3},
      {"aten.sym_numel.default(%x)", 6},
  };
  const Input input{{0, 0, 0, 0, 0, 0}, {2, 3}, DType::kF32};
  for (const auto& [call, want] : sums) {
    const std::string lines =
        "%n: null = " + call + "\n%out: int64[] = aten.scalar_tensor.default(%n, dtype=<torch.int64>)\n";
    EXPECT_EQ(run_program(lines, {{"x", input}}), Values{want}) << call;
  }
  // A hint counts, whatever the op is.
  EXPECT_EQ(run_program("%n: {\"f\" 2.5} = my.op()\n%out: float32[2, 3] = aten.add.Tensor(%x, %n)\n",
                        {{"x", input}}),
            Values(6, 2.5));
}

TEST(InterpreterOps, PromoteAsPyTorchDoes) {
  const Input vector{{3, 5}, {2}, DType::kBF16};
  const Input number{{0.5}, {}, DType::kF32};
  // A tensor without dims does not widen one with dims, nor does a number.
  EXPECT_EQ(run_program("%out: bfloat16[2] = aten.mul.Tensor(%x, %y)\n", {{"x", vector}, {"y", number}}),
            (Values{1.5, 2.5}));
  EXPECT_EQ(run_program("%out: bfloat16[2] = aten.sub.Tensor(1, %x)\n", {{"x", vector}}), (Values{-2, -4}));
  const Input half{{1, 2}, {2}, DType::kF16};
  EXPECT_EQ(run_program("%out: float32[2] = aten.div.Tensor(%x, %y)\n", {{"x", half}, {"y", vector}}),
            (Values{static_cast<float>(1.0F / 3), static_cast<float>(2.0F / 5)}));
  const Input wide{{0x1p-40}, {1}, DType::kF64};
  EXPECT_EQ(run_program("%out: float64[1] = aten.add.Scalar(%x, 1)\n", {{"x", wide}}), Values{1 + 0x1p-40});
}

TEST(InterpreterOps, Broadcast) {
  const Input rows{{1, 2}, {2, 1}, DType::kF32};
  const Input columns{{10, 20, 30}, {3}, DType::kF32};
  EXPECT_EQ(run_program("%out: float32[2, 3] = aten.add.Tensor(%x, %y)\n", {{"x", rows}, {"y", columns}}),
            (Values{11, 21, 31, 12, 22, 32}));
  EXPECT_EQ(run_program("%out: float32[2, 2] = aten.expand.default(%x, [-1, 2])\n", {{"x", rows}}),
            (Values{1, 1, 2, 2}));
}

TEST(InterpreterOps, HandNaNsThrough) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const Input x{{nan, -1}, {2}, DType::kF32};
  const Values clamped = run_program("%out: float32[2] = aten.clamp_min.default(%x, 0.5)\n", {{"x", x}});
  EXPECT_TRUE(std::isnan(clamped[0]));
  EXPECT_EQ(clamped[1], 0.5);
  EXPECT_TRUE(std::isnan(run_program("%out: float32[] = aten.max.default(%x)\n", {{"x", x}})[0]));
}

TEST(InterpreterOps, Reduce) {
  const Input x{{1, 2, 3, 4, 5, 6}, {2, 3}, DType::kBF16};
  EXPECT_EQ(run_program("%out: bfloat16[3] = aten.sum.dim_IntList(%x, [0])\n", {{"x", x}}),
            (Values{5, 7, 9}));
  EXPECT_EQ(run_program("%out: bfloat16[2, 1] = aten.mean.dim(%x, [-1], true)\n", {{"x", x}}),
            (Values{2, 5}));
  EXPECT_EQ(run_program("%out: bfloat16[2, 1] = aten.amax.default(%x, [-1], true)\n", {{"x", x}}),
            (Values{3, 6}));
  EXPECT_EQ(run_program("%out: bfloat16[] = aten.sum.default(%x)\n", {{"x", x}}), Values{21});
}

TEST(InterpreterOps, HandOnWhatTheyWereGiven) {
  const Input x{{1, 2, 3}, {3}, DType::kBF16};
  for (const std::string op :
       {"aten.alias.default(%x)", "aten.contiguous.default(%x)", "aten.detach.default(%x)",
        "aten.lift_fresh_copy.default(%x)", "prims.device_put.default(%x, <cpu>)",
        "aten.dropout.default(%x, 0.0, true)", "aten.dropout.default(%x, 0.5, false)"}) {
    EXPECT_EQ(run_program("%out: bfloat16[3] = " + op + "\n", {{"x", x}}), x.values) << op;
  }
  const Values zeros(3, 0.0);
  EXPECT_EQ(run_program("%out: bfloat16[3] = aten.empty_like.default(%x)\n", {{"x", x}}), zeros);
  EXPECT_EQ(run_program("%out: float32[3] = aten.empty.memory_format([3])\n", {{"x", x}}), zeros);
}

TEST(InterpreterOps, KnowInfinitiesAndNaNs) {
  const double infinity = std::numeric_limits<double>::infinity();
  const Input x{{infinity, -infinity, std::nan(""), 1}, {4}, DType::kBF16};
  EXPECT_EQ(run_program("%out: bool[4] = aten.isinf.default(%x)\n", {{"x", x}}), (Values{1, 1, 0, 0}));
  EXPECT_EQ(run_program("%out: bool[4] = aten.isnan.default(%x)\n", {{"x", x}}), (Values{0, 0, 1, 0}));
  const Values larger = run_program("%out: bfloat16[4] = aten.maximum.default(%x, 2)\n", {{"x", x}});
  EXPECT_EQ(larger[1], 2);
  EXPECT_TRUE(std::isnan(larger[2]));
  // A query that sees no key has weights of 0, not of 0 / 0.
  const Input q{{1, 2}, {1, 1, 2, 1}, DType::kF32};
  const Input mask{{-infinity, -infinity, 0, -infinity}, {2, 2}, DType::kF32};
  EXPECT_EQ(run_program("%a: (float32[1, 1, 2, 1], float32[1, 1, 2]) = "
                        "aten._scaled_dot_product_flash_attention_for_cpu.default(%x, %x, %x, attn_mask=%y)\n"
                        "%out: float32[1, 1, 2, 1] = \"<built-in function getitem>\"(%a, 0)\n",
                        {{"x", q}, {"y", mask}}),
            (Values{0, 1}));
}

TEST(InterpreterOps, CompareInTheTypeOfTheTensor) {
  // 0.1 is no bf16: PyTorch compares with the bf16 next to it.
  const Input x{{0.1}, {1}, DType::kBF16};
  EXPECT_EQ(run_program("%out: bool[1] = aten.eq.Scalar(%x, 0.1)\n", {{"x", x}}), Values{1});
  const Input wide{{0.1}, {1}, DType::kF32};
  EXPECT_EQ(run_program("%out: bool[1] = aten.lt.Tensor(%x, %y)\n", {{"x", wide}, {"y", x}}), Values{1});
}

TEST(InterpreterOps, FillWhereAMaskSaysSo) {
  const Input x{{1, 2, 3, 4}, {2, 2}, DType::kBF16};
  const Input mask{{1, 0}, {2}, DType::kBool};
  const Input value{{7}, {}, DType::kF32};
  EXPECT_EQ(run_program("%out: bfloat16[2, 2] = aten.masked_fill.Tensor(%x, %y, %z)\n",
                        {{"x", x}, {"y", mask}, {"z", value}}),
            (Values{7, 2, 7, 4}));
}

TEST(InterpreterOps, WrapIntegersAround) {
  const Input x{{0x1p62}, {1}, DType::kI64};
  EXPECT_EQ(run_program("%out: int64[1] = aten.add.Tensor(%x, %x)\n", {{"x", x}}), Values{-0x1p63});
  // 2^53 + 1 is no f64.
  const Input exact{{0x1p53}, {1}, DType::kI64};
  EXPECT_EQ(run_program("%a: int64[1] = aten.add.Tensor(%x, 1)\n"
                        "%out: int64[1] = aten.sub.Tensor(%a, 9007199254740992)\n",
                        {{"x", exact}}),
            Values{1});
}

std::string random_numbers(std::string_view mode, int seed) {
  return "%s: int64[2] = prims.inductor_seeds.default(2, <cpu>)\n"
         "%a: int64[] = prims.inductor_lookup_seed.default(%s, " +
         std::to_string(seed) + ")\n%out: float32[4096] = prims.inductor_random.default([4096], %a, \"" +
         std::string(mode) + "\")\n";
}

TEST(InterpreterOps, MakeRandomNumbersOfASeed) {
  for (const std::string_view mode : {"rand", "randn"}) {
    const Values numbers = run_program(random_numbers(mode, 0), {});
    EXPECT_EQ(numbers, run_program(random_numbers(mode, 0), {}));
    EXPECT_NE(numbers, run_program(random_numbers(mode, 1), {}));
    double sum = 0;
    double squares = 0;
    for (const double number : numbers) {
      sum += number;
      squares += number * number;
      EXPECT_TRUE(mode != "rand" || (number >= 0 && number < 1)) << number;
    }
    const double count = static_cast<double>(numbers.size());
    EXPECT_NEAR(sum / count, mode == "rand" ? 0.5 : 0, 0.06);
    EXPECT_NEAR(squares / count, mode == "rand" ? 1.0 / 3 : 1, 0.1);
  }
}

TEST(InterpreterOps, MoveElements) {
  const Input x{{1, 2, 3, 4, 5, 6}, {2, 3}, DType::kF32};
  EXPECT_EQ(run_program("%out: float32[3, 2] = aten.permute.default(%x, [1, 0])\n", {{"x", x}}),
            (Values{1, 4, 2, 5, 3, 6}));
  EXPECT_EQ(run_program("%out: float32[4, 3] = aten.repeat.default(%x, [2, 1])\n", {{"x", x}}),
            (Values{1, 2, 3, 4, 5, 6, 1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(run_program("%s: (float32[2, 2], float32[2, 1]) = aten.split.Tensor(%x, 2, 1)\n"
                        "%a: float32[2, 2] = \"<built-in function getitem>\"(%s, 0)\n"
                        "%b: float32[2, 1] = \"<built-in function getitem>\"(%s, 1)\n"
                        "%out: float32[2, 3] = aten.cat.default([%b, %a], 1)\n",
                        {{"x", x}}),
            (Values{3, 1, 2, 6, 4, 5}));
  const Input f8{{1, 2}, {2}, DType::kF8E4M3};
  EXPECT_EQ(run_program("%out: uint8[2] = aten.view.dtype(%x, <torch.uint8>)\n", {{"x", f8}}),
            (Values{0x38, 0x40}));
}

TEST(InterpreterOps, MakeRandomNumbersOfANodesName) {
  for (const std::string op : {"aten.rand.default", "aten.randn.default"}) {
    const std::string call = ": float32[2, 50] = " + op + "([2, 50])\n";
    const Values numbers = run_program("%out" + call, {});
    EXPECT_EQ(numbers, run_program("%out" + call, {}));
    EXPECT_NE(numbers,
              run_program("%other" + call + "%out: float32[2, 50] = aten.alias.default(%other)\n", {}));
    const auto [least, most] = std::minmax_element(numbers.begin(), numbers.end());
    EXPECT_EQ(*least < 0, op == "aten.randn.default");
    EXPECT_GT(*most, 0.5);
  }
}

TEST(InterpreterOps, MakeRandomIntegersInARange) {
  const Values numbers = run_program(
      "%s: int64[] = prims.inductor_seed.default(<cpu>)\n"
      "%out: int64[1000] = prims.inductor_randint.default(-2, 3, [1000], %s)\n",
      {});
  EXPECT_EQ(*std::min_element(numbers.begin(), numbers.end()), -2);
  EXPECT_EQ(*std::max_element(numbers.begin(), numbers.end()), 2);
}

TEST(InterpreterOps, PutDimsAmongOthers) {
  const Input x{{1, 2}, {1, 2}, DType::kF32};
  EXPECT_EQ(run_program("%out: float32[2, 3, 2] = prims.broadcast_in_dim.default(%x, [2, 3, 2], [0, 2])\n",
                        {{"x", x}}),
            (Values{1, 2, 1, 2, 1, 2, 1, 2, 1, 2, 1, 2}));
}

TEST(InterpreterOps, Multiply) {
  const Input a{{1, 2, 3, 4}, {2, 2}, DType::kBF16};
  const Input bias{{100, 200}, {2}, DType::kBF16};
  EXPECT_EQ(run_program("%out: bfloat16[2, 2] = aten.addmm.default(%y, %x, %x)\n", {{"x", a}, {"y", bias}}),
            (Values{107, 210, 115, 222}));
  const Input f8{{1, 2, 3, 4}, {2, 2}, DType::kF8E4M3};
  const Input rows{{0.5, 2}, {2, 1}, DType::kF32};
  EXPECT_EQ(
      run_program(
          "%t: float32[1, 2] = aten.permute.default(%y, [1, 0])\n"
          "%out: bfloat16[2, 2] = aten._scaled_mm.default(%x, %x, %y, %t, null, null, <torch.bfloat16>)\n",
          {{"x", f8}, {"y", rows}}),
      (Values{7 * 0.25, 10, 15, 22 * 4}));
}

}  // namespace
}  // namespace tandem::graph::interpreter
