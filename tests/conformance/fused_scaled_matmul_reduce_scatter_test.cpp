#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "conformance/fused_scatter_cases.hpp"

// fused_scaled_matmul_reduce_scatter against float64 from the same f8 bits, as
// fused_matmul_reduce_scatter_test.cpp: the product is N-D, so whatever dim is scattered, a rank gets that
// dim's shard of each batch.

namespace tandem {
namespace {

using coll::ReduceOp;
using test::Expected;
using test::Guarded;
using test::JobCase;
using test::RankContextOfTest;
using test::scale_of;
using test::value_of;
using test::with_last;

enum class Scaled { kNo, kTensorwise, kRowwise };

struct Product {
  std::int64_t k = 6;  ///< rank r has r more
  Scaled scaled = Scaled::kTensorwise;
  DType a = DType::kF8E4M3;
  DType b = DType::kF8E4M3;
  bool bias = false;
  bool result_scale = false;
};

struct Case {
  Dims sizes;  ///< of the product: [..., n]
  int dim = 0;
  DType dtype = DType::kBF16;  ///< of out
  std::vector<Product> products = {{}};
  ReduceOp op = ReduceOp::kSum;
  bool keeps_product = false;
  bool spread = false;
  bool exact_partials = false;  ///< partials travel as f32

  [[nodiscard]] std::string text(int world, Algorithm algorithm) const;
};

std::string Case::text(int world, Algorithm algorithm) const {
  std::string all = fmt::format("scaled_matmul_reduce_scatter {} {} dim {} {} w{}", to_string(dtype),
                                to_string(sizes), dim, to_string(op), world);
  for (const Product& p : products) {
    all += fmt::format(" {}*{} k {}{}{}{}", to_string(p.a), to_string(p.b), p.k,
                       p.scaled == Scaled::kRowwise ? " row-wise" : "", p.bias ? " bias" : "",
                       p.result_scale ? " result_scale" : "");
  }
  return all + (spread ? " spread" : "") + (exact_partials ? " f32 partials " : " ") +
         std::string(to_string(algorithm));
}

// Ids of the tensors of a rank's product j.
enum Tensor { kA, kB, kScaleOfA, kScaleOfB, kBias, kResultScale };
int id_of(Tensor tensor, int rank, std::size_t j) {
  return 1000 * (tensor + 1) + 100 * rank + static_cast<int>(j);
}

double scale_at(const Product& product, Tensor tensor, int rank, std::size_t j, std::int64_t idx) {
  if (product.scaled == Scaled::kNo) return 1;
  return scale_of(id_of(tensor, rank, j), product.scaled == Scaled::kRowwise ? idx : 0);
}
double result_scale_at(const Product& product, int rank, std::size_t j) {
  return product.result_scale ? scale_of(id_of(kResultScale, rank, j), 0) : 1;
}

class Operands {
 public:
  Operands(RankContextOfTest& rank, const Case& c) : rank_(rank), case_(c) {
    for (std::size_t j = 0; j < c.products.size(); ++j) add_product(j);
    args.a = a_;
    args.b = b_;
    args.a_scale = a_scales_;
    args.b_scale = b_scales_;
    args.bias = biases_;
    args.result_scale = result_scales_;
    args.scatter_dim = c.dim;
    args.reduce_op = c.op;
    if (c.exact_partials) args.partials = DType::kF32;
  }

  [[nodiscard]] Expected product_at(int rank, const Dims& at) const;
  [[nodiscard]] static double added_at(const Dims& /*at*/) { return 0; }

  ScaledMatmulReduceScatterArgs args;

 private:
  TensorView add(const Dims& sizes, DType dtype, const std::function<double(std::int64_t)>& value) {
    tensors_.emplace_back(rank_.device, case_.spread ? test::spread_out(sizes) : test::dense(sizes), dtype);
    tensors_.back().fill(value);
    return tensors_.back().view();
  }

  void add_product(std::size_t j) {
    const Product& p = case_.products[j];
    const int r = rank_.group.rank();
    const std::int64_t n = case_.sizes.back();
    const Dims left = with_last(case_.sizes, p.k + r);
    a_.push_back(add(left, p.a, [&](std::int64_t idx) { return value_of(id_of(kA, r, j), idx, p.a); }));
    b_.push_back(
        add({p.k + r, n}, p.b, [&](std::int64_t idx) { return value_of(id_of(kB, r, j), idx, p.b); }));
    a_scales_.emplace_back();
    b_scales_.emplace_back();
    biases_.emplace_back();
    result_scales_.emplace_back();
    if (p.scaled != Scaled::kNo) {
      const bool rowwise = p.scaled == Scaled::kRowwise;
      a_scales_.back() = add(rowwise ? with_last(case_.sizes, 1) : Dims{}, DType::kF32,
                             [&](std::int64_t idx) { return scale_at(p, kScaleOfA, r, j, idx); });
      b_scales_.back() = add(rowwise ? Dims{1, n} : Dims{1}, DType::kF32,
                             [&](std::int64_t idx) { return scale_at(p, kScaleOfB, r, j, idx); });
    }
    if (p.bias)
      biases_.back() = add({n}, case_.dtype,
                           [&](std::int64_t idx) { return value_of(id_of(kBias, r, j), idx, case_.dtype); });
    if (p.result_scale)
      result_scales_.back() = add({1}, DType::kF32, [&](std::int64_t) { return result_scale_at(p, r, j); });
  }

  RankContextOfTest& rank_;
  const Case& case_;
  std::deque<Guarded> tensors_;
  std::vector<TensorView> a_, b_;
  std::vector<std::optional<TensorView>> a_scales_, b_scales_, biases_, result_scales_;
};

Expected Operands::product_at(int rank, const Dims& at) const {
  Expected sum;
  const std::int64_t n = case_.sizes.back();
  const std::int64_t row = test::flat_index(case_.sizes, at) / n;
  for (std::size_t j = 0; j < case_.products.size(); ++j) {
    const Product& p = case_.products[j];
    const std::int64_t k = p.k + rank;
    double value = 0;
    double magnitude = 0;
    for (std::int64_t i = 0; i < k; ++i) {
      const double term = value_of(id_of(kA, rank, j), row * k + i, p.a) *
                          value_of(id_of(kB, rank, j), i * n + at.back(), p.b);
      value += term;
      magnitude += std::abs(term);
    }
    value *= scale_at(p, kScaleOfA, rank, j, row) * scale_at(p, kScaleOfB, rank, j, at.back());
    if (p.bias) value += value_of(id_of(kBias, rank, j), at.back(), case_.dtype);
    sum.value += value * result_scale_at(p, rank, j);
    sum.error += static_cast<double>(k + 8) * (magnitude + 1) * std::ldexp(1.0, -24);
  }
  return sum;
}

void run_all(const JobCase& job, const std::vector<Case>& cases) {
  test::run_scatters<Operands>(job, cases, fused_scaled_matmul_reduce_scatter);
}

class ScaledMatmulReduceScatter : public ::testing::TestWithParam<JobCase> {};

TEST_P(ScaledMatmulReduceScatter, every_scale_and_dim) {
  std::vector<Case> cases;
  for (const Scaled scaled : {Scaled::kTensorwise, Scaled::kRowwise, Scaled::kNo}) {
    for (const Dims& sizes : {Dims{16, 24}, Dims{8, 16, 24}, Dims{2, 8, 8, 16}}) {
      for (int dim = 0; dim < sizes.size(); ++dim) {
        cases.push_back({.sizes = sizes,
                         .dim = dim,
                         .dtype = dim % 2 == 0 ? DType::kBF16 : DType::kF32,
                         .products = {{.k = 32, .scaled = scaled, .a = DType::kF8E5M2}},
                         .op = dim % 2 == 0 ? ReduceOp::kAvg : ReduceOp::kSum});
      }
    }
  }
  run_all(GetParam(), cases);
}

// Rows that a program flattened for its product, [batch*rows, k], scattered along the rows of each batch: the
// memory is the same as of the N-D operands here.
TEST_P(ScaledMatmulReduceScatter, rows_of_each_batch) {
  std::vector<Case> cases;
  for (const std::int64_t batch : {1, 2, 8}) {
    for (const std::int64_t rows : {16, 13}) {
      for (const Scaled scaled : {Scaled::kTensorwise, Scaled::kRowwise}) {
        cases.push_back({.sizes = {batch, rows, 8},
                         .dim = 1,
                         .products = {{.k = 16, .scaled = scaled, .bias = true}},
                         .keeps_product = true});
      }
    }
  }
  run_all(GetParam(), cases);
}

TEST_P(ScaledMatmulReduceScatter, odd_and_empty_sizes) {
  std::vector<Case> cases;
  for (const std::int64_t m : {0, 1, 2, 5, 9}) {
    for (const std::int64_t n : {0, 1, 7}) {
      const std::vector<Product> rowwise = {{.k = 5, .scaled = Scaled::kRowwise, .bias = m % 2 == 0}};
      cases.push_back({.sizes = {m, n}, .dim = 0, .products = rowwise});
      cases.push_back({.sizes = {n, m}, .dim = 1, .dtype = DType::kF32, .products = rowwise});
      cases.push_back({.sizes = {3, m, n},
                       .dim = 1,
                       .dtype = DType::kF16,
                       .products = {{.k = 0}},
                       .keeps_product = true});
    }
  }
  run_all(GetParam(), cases);
}

TEST_P(ScaledMatmulReduceScatter, lists_of_scaled_and_plain_products) {
  const std::vector<Product> mixed = {
      {.k = 9, .scaled = Scaled::kRowwise, .bias = true, .result_scale = true},
      {.k = 1, .scaled = Scaled::kNo, .a = DType::kBF16, .b = DType::kBF16, .bias = true},
      {.k = 20, .scaled = Scaled::kTensorwise, .a = DType::kF8E5M2, .result_scale = true},
      {.k = 4, .scaled = Scaled::kNo, .a = DType::kF32, .b = DType::kF32, .result_scale = true}};
  std::vector<Case> cases;
  for (int dim = 0; dim < 3; ++dim) {
    for (const bool exact : {false, true}) {
      for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAvg}) {
        cases.push_back({.sizes = {7, 11, 10},
                         .dim = dim,
                         .dtype = op == ReduceOp::kSum ? DType::kBF16 : DType::kF16,
                         .products = mixed,
                         .op = op,
                         .keeps_product = true,
                         .spread = true,
                         .exact_partials = exact});
      }
    }
  }
  run_all(GetParam(), cases);
}

TEST_P(ScaledMatmulReduceScatter, f8_results) {
  std::vector<Case> cases;
  for (int dim = 0; dim < 2; ++dim) {
    for (const bool exact : {false, true}) {
      for (const DType out : {DType::kF8E4M3, DType::kF8E5M2}) {
        cases.push_back({.sizes = {9, 10},
                         .dim = dim,
                         .dtype = out,
                         .products = {{.scaled = Scaled::kRowwise, .bias = true}, {.k = 2}},
                         .keeps_product = true,
                         .exact_partials = exact});
      }
    }
  }
  run_all(GetParam(), cases);
}

INSTANTIATE_TEST_SUITE_P(Ranks, ScaledMatmulReduceScatter,
                         ::testing::ValuesIn(test::cpu_cases({1, 2, 3, 4, 8})), test::job_name);

}  // namespace
}  // namespace tandem
