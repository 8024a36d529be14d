#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "conformance/fused_scatter_cases.hpp"

// fused_matmul_reduce_scatter against float64, for every backend x algorithm x dtype x dim x number of ranks:
// as fused_all_gather_matmul_test.cpp.

namespace tandem {
namespace {

using coll::ReduceOp;
using test::Expected;
using test::Guarded;
using test::JobCase;
using test::RankContextOfTest;
using test::value_of;
using test::with_last;

struct Case {
  Dims sizes;  ///< of the product: [..., n]
  int dim = 0;
  DType dtype = DType::kF32;
  std::vector<std::int64_t> k = {6};  ///< of each product; rank r has r more
  ReduceOp op = ReduceOp::kSum;
  bool bias = false;
  bool keeps_product = false;
  bool spread = false;
  bool exact_partials = false;  ///< partials travel as f32

  [[nodiscard]] std::string text(int world) const;
  [[nodiscard]] Expected product_at(int rank, const Dims& at) const;
  [[nodiscard]] double added_at(const Dims& at) const;
};

std::string Case::text(int world) const {
  std::string all = fmt::format("matmul_reduce_scatter {} {} dim {} {} w{} k", to_string(dtype),
                                to_string(sizes), dim, to_string(op), world);
  for (const auto each : k) all += fmt::format(" {}", each);
  return all + (bias ? " bias" : "") + (keeps_product ? " product" : "") + (spread ? " spread" : "") +
         (exact_partials ? " f32 partials" : "");
}

constexpr int kBias = 7;
int id_of_a(int rank, std::size_t j) {
  return 1000 + 100 * rank + static_cast<int>(j);
}
int id_of_b(int rank, std::size_t j) {
  return 5000 + 100 * rank + static_cast<int>(j);
}

struct Operands {
  Operands(RankContextOfTest& rank, const Case& c) {
    const int r = rank.group.rank();
    for (std::size_t j = 0; j < c.k.size(); ++j) {
      const std::int64_t k = c.k[j] + r;
      const Dims left = with_last(c.sizes, k);
      const Dims right = {k, c.sizes.back()};
      a.emplace_back(rank.device, c.spread ? test::spread_out(left) : test::dense(left), c.dtype);
      a.back().fill([&](std::int64_t idx) { return value_of(id_of_a(r, j), idx, c.dtype); });
      b.emplace_back(rank.device, c.spread ? test::spread_out(right) : test::dense(right), c.dtype);
      b.back().fill([&](std::int64_t idx) { return value_of(id_of_b(r, j), idx, c.dtype); });
      a_views.push_back(a.back().view());
      b_views.push_back(b.back().view());
    }
    args.a = a_views;
    args.b = b_views;
    args.scatter_dim = c.dim;
    args.reduce_op = c.op;
    if (c.exact_partials) args.partials = DType::kF32;
    if (!c.bias) return;
    bias.emplace(rank.device, Dims{c.sizes.back()}, c.dtype);
    bias->fill([&](std::int64_t idx) { return value_of(kBias, idx, c.dtype); });
    args.bias = bias->view();
  }

  std::deque<Guarded> a, b;
  std::optional<Guarded> bias;
  std::vector<TensorView> a_views, b_views;
  MatmulReduceScatterArgs args;
};

Expected Case::product_at(int rank, const Dims& at) const {
  double sum = 0;
  double magnitude = 0;
  for (std::size_t j = 0; j < k.size(); ++j) {
    const Dims left = with_last(sizes, k[j] + rank);
    for (std::int64_t i = 0; i < left.back(); ++i) {
      const double term = value_of(id_of_a(rank, j), test::flat_index(left, with_last(at, i)), dtype) *
                          value_of(id_of_b(rank, j), i * sizes.back() + at.back(), dtype);
      sum += term;
      magnitude += std::abs(term);
    }
  }
  return {sum, (magnitude + 1) * 60 * std::ldexp(1.0, -24)};
}

double Case::added_at(const Dims& at) const {
  return bias ? value_of(kBias, at.back(), dtype) : 0;
}

void run_all(const JobCase& job, const std::vector<Case>& cases) {
  test::run_scatters<Operands>(job, cases, fused_matmul_reduce_scatter);
}

class MatmulReduceScatter : public ::testing::TestWithParam<JobCase> {};

TEST_P(MatmulReduceScatter, every_dtype_and_dim) {
  std::vector<Case> cases;
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    for (const Dims& sizes : {Dims{16, 24}, Dims{8, 16, 24}, Dims{2, 8, 8, 16}}) {
      for (int dim = 0; dim < sizes.size(); ++dim) {
        cases.push_back({.sizes = sizes,
                         .dim = dim,
                         .dtype = dtype,
                         .k = {40},
                         .op = dim % 2 == 0 ? ReduceOp::kSum : ReduceOp::kAvg});
      }
    }
  }
  run_all(GetParam(), cases);
}

TEST_P(MatmulReduceScatter, odd_and_empty_sizes) {
  std::vector<Case> cases;
  for (std::int64_t m = 0; m < 10; ++m) {
    for (const std::int64_t n : {0, 1, 7}) {
      cases.push_back({.sizes = {m, n}, .dim = 0, .dtype = DType::kBF16, .k = {5}, .bias = m % 2 == 0});
      cases.push_back({.sizes = {n, m}, .dim = 1, .dtype = DType::kF32, .k = {5}, .bias = m % 2 == 1});
      cases.push_back(
          {.sizes = {3, m, n}, .dim = 1, .dtype = DType::kF16, .k = {0}, .keeps_product = m % 3 == 0});
    }
  }
  run_all(GetParam(), cases);
}

TEST_P(MatmulReduceScatter, lists_bias_product_partials_and_strides) {
  std::vector<Case> cases;
  for (int dim = 0; dim < 3; ++dim) {
    for (const bool exact : {false, true}) {
      for (const std::vector<std::int64_t>& k :
           {std::vector<std::int64_t>{9}, std::vector<std::int64_t>{9, 1, 20}}) {
        for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAvg}) {
          // Ranks agree on sizes, not on k. Hosts do not wait for each other in a problem that they know, and
          // on one GPU a rank that loads a kernel may then wait for another's that waits for this rank.
          const std::int64_t n = k.size() == 1 ? 17 : 18;
          cases.push_back({.sizes = {11, 13, n},
                           .dim = dim,
                           .dtype = DType::kBF16,
                           .k = k,
                           .op = op,
                           .bias = true,
                           .keeps_product = true,
                           .spread = true,
                           .exact_partials = exact});
        }
      }
    }
  }
  run_all(GetParam(), cases);
}

INSTANTIATE_TEST_SUITE_P(Ranks, MatmulReduceScatter, ::testing::ValuesIn(test::all_cases({1, 2, 3, 4, 8})),
                         test::job_name);

}  // namespace
}  // namespace tandem
