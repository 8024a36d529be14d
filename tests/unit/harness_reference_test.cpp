#include <gtest/gtest.h>

#include <algorithm>
#include <tandem/base/convert.hpp>
#include <vector>

#include "harness/operands.hpp"
#include "harness/reference.hpp"

// The reference against a result that is right, and against results with one wrong element.

namespace tandem::harness {
namespace {

Problem scatter_problem() {
  Problem problem;
  problem.op = Op::kMatmulReduceScatter;
  problem.a = {5, 12};
  problem.n = {7};
  problem.ranks = 3;
  problem.bias = true;
  return problem;
}

/// All of the result, in f32, summed rank by rank.
Tensor right_result(const Problem& problem, const Reference& reference) {
  Tensor result = Tensor::host(problem.result_sizes(0), problem.dtype);
  auto* values = result.view().data_as<float>();
  for (std::int64_t row = 0; row < 5; ++row) {
    for (std::int64_t column = 0; column < 7; ++column) {
      double sum = 0;
      for (int rank = 0; rank < problem.ranks; ++rank)
        sum += reference.partial_sum(rank, 0, row, column).value;
      values[row * 7 + column] = static_cast<float>(sum + reference.bias_at(0, column));
    }
  }
  return result;
}

TEST(Reference, OneWrongElementIsFoundAndNamed) {
  const Problem problem = scatter_problem();
  const Reference reference(problem, GeneratedTensors(problem));
  const Tensor result = right_result(problem, reference);
  const Window window = window_of_result(problem, 0, 1);
  const TensorView part = result.view().narrow(window.dim, window.shard.offset, window.shard.size);
  Wrong wrong;
  reference.compare(0, window, part, wrong);
  EXPECT_EQ(wrong.count, 0) << wrong.first;

  result.view().data_as<float>()[2 * 7 + 3] *= 1.001F;  // row 2 is rank 1's first
  reference.compare(0, window, part, wrong);
  EXPECT_EQ(wrong.count, 1);
  EXPECT_NE(wrong.first.find("row 2, column 3"), std::string::npos) << wrong.first;
}

Tensor tensor(const std::vector<float>& values, const Dims& sizes) {
  Tensor made = Tensor::host(sizes, DType::kF32);
  std::copy(values.begin(), values.end(), made.view().data_as<float>());
  return made;
}

// 2 rows, 1 column, k of 4 in two slices.
TEST(ProductReference, EveryTermCounts) {
  const Tensor a = tensor({1, 2, 3, 4, 5, 6, 7, 8}, {2, 4});
  const Tensor b = tensor({1, 1, 1, -1}, {4, 1});
  const Tensor a_scale = tensor({2, 4, 8, 16}, {2, 2});
  const Tensor b_scale = tensor({3}, {1, 1});
  const Tensor bias = tensor({100}, {1});
  const Tensor result_scale = tensor({0.5F}, {1});
  const Tensor addend = tensor({1000, 2000}, {2, 1});
  const ProductReference reference({.a = a.view(),
                                    .b = b.view(),
                                    .a_scale = a_scale.view(),
                                    .b_scale = b_scale.view(),
                                    .bias = bias.view(),
                                    .result_scale = result_scale.view(),
                                    .addend = addend.view()});
  EXPECT_EQ(reference.sum_at(0, 0).value, ((3 * 2 - 1 * 4) * 3 + 100) * 0.5 + 1000);
  EXPECT_EQ(reference.sum_at(1, 0).value, ((11 * 8 - 1 * 16) * 3 + 100) * 0.5 + 2000);
  Wrong wrong;
  const Tensor result = tensor({1053, 2158}, {2, 1});
  reference.compare(result.view(), "out", wrong);
  EXPECT_EQ(wrong.count, 0) << wrong.first;
  result.view().data_as<float>()[1] += 0.1F;
  reference.compare(result.view(), "out", wrong);
  EXPECT_EQ(wrong.count, 1);
}

// 1 row, 3 columns; scales for every two of k and of the columns.
TEST(ProductReference, ScalesByBlocks) {
  const Tensor a = tensor({1, 2, 3}, {1, 3});
  const Tensor b = tensor({1, 1, 1, 1, 1, 1, 1, 1, 1}, {3, 3});
  const Tensor a_scale = tensor({2, 4}, {1, 2});
  const Tensor b_scale = tensor({10, 100, 20, 200}, {2, 2});
  const ProductReference reference(
      {.a = a.view(), .b = b.view(), .a_scale = a_scale.view(), .b_scale = b_scale.view(), .scale_block = 2});
  EXPECT_EQ(reference.sum_at(0, 1).value, 3 * 2 * 10 + 3 * 4 * 20);
  EXPECT_EQ(reference.sum_at(0, 2).value, 3 * 2 * 100 + 3 * 4 * 200);
}

TEST(Rounded, F8Saturates) {
  EXPECT_EQ(rounded({1e6, 0}, DType::kF8E4M3).value, 448);
  EXPECT_EQ(rounded({-1e6, 0}, DType::kF8E5M2).value, -57344);
}

TEST(SumOverRanks, IsAMeanWithABiasOnce) {
  const Expected partials[] = {{1, 0}, {4, 0}};
  EXPECT_EQ(sum_over_ranks(partials, DType::kBF16, coll::ReduceOp::kSum, 8).value, 13);
  EXPECT_EQ(sum_over_ranks(partials, DType::kBF16, coll::ReduceOp::kAvg, 8).value, 10.5);
}

TEST(Reference, NaNIsNeverRight) {
  EXPECT_FALSE(is_right(std::numeric_limits<double>::quiet_NaN(), {.value = 0, .tolerance = 1e30}));
}

TEST(Reference, SamplesAgreeWithIt) {
  const Problem problem = scatter_problem();
  const Reference reference(problem, GeneratedTensors(problem));
  const Tensor result = right_result(problem, reference);
  Wrong wrong;
  compare_samples(problem, 0, {0, {0, 5}}, result.view(), 35, wrong);
  EXPECT_EQ(wrong.count, 0) << wrong.first;
  for (std::int64_t i = 0; i < 35; ++i) result.view().data_as<float>()[i] += 1;
  compare_samples(problem, 0, {0, {0, 5}}, result.view(), 35, wrong);
  EXPECT_EQ(wrong.count, 35);
}

// What a rank reads of a tensor is what another reads of the whole.
TEST(GeneratedTensors, AreTheSameForEverySharding) {
  const Problem problem = scatter_problem();
  const GeneratedTensors source(problem);
  const Tensor whole = Tensor::host({5, 12}, DType::kF32);
  source.read({OperandKind::kA}, {0, {0, 5}}, whole.view());
  const Tensor part = Tensor::host({5, 4}, DType::kF32);
  source.read({OperandKind::kA}, window_of_a(problem, 2), part.view());
  for (std::int64_t row = 0; row < 5; ++row) {
    for (std::int64_t column = 0; column < 4; ++column) {
      EXPECT_EQ(element_as_f64(part.view(), row * 4 + column),
                element_as_f64(whole.view(), row * 12 + 8 + column));
    }
  }
}

}  // namespace
}  // namespace tandem::harness
