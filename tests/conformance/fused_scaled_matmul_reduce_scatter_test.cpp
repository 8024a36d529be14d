#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "conformance/fused_harness.hpp"

// fused_scaled_matmul_reduce_scatter against float64 from the same f8 bits, as
// fused_matmul_reduce_scatter_test.cpp: the product is N-D, so whatever dim is scattered, a rank gets that
// dim's shard of each batch.

namespace tandem {
namespace {

using coll::ReduceOp;
using test::Complaints;
using test::Guarded;
using test::JobCase;
using test::RankContextOfTest;
using test::scale_of;
using test::value_of;

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
  DType out = DType::kBF16;
  std::vector<Product> products = {{}};
  ReduceOp op = ReduceOp::kSum;
  bool keeps_product = false;
  bool spread = false;
  bool exact_partials = false;  ///< partials travel as f32
};

std::string to_text(const Case& c, int world) {
  std::string text = fmt::format("scaled_matmul_reduce_scatter {} {} dim {} {} w{}", to_string(c.out),
                                 to_string(c.sizes), c.dim, to_string(c.op), world);
  for (const Product& p : c.products) {
    text += fmt::format(" {}*{} k {}{}{}{}", to_string(p.a), to_string(p.b), p.k,
                        p.scaled == Scaled::kRowwise ? " row-wise" : "", p.bias ? " bias" : "",
                        p.result_scale ? " result_scale" : "");
  }
  return text + (c.spread ? " spread" : "") + (c.exact_partials ? " f32 partials" : "");
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
    Dims left = case_.sizes;
    left[left.size() - 1] = p.k + r;
    a_.push_back(add(left, p.a, [&](std::int64_t idx) { return value_of(id_of(kA, r, j), idx, p.a); }));
    b_.push_back(
        add({p.k + r, n}, p.b, [&](std::int64_t idx) { return value_of(id_of(kB, r, j), idx, p.b); }));
    a_scales_.emplace_back();
    b_scales_.emplace_back();
    biases_.emplace_back();
    result_scales_.emplace_back();
    if (p.scaled != Scaled::kNo) {
      Dims rows = case_.sizes;
      rows[rows.size() - 1] = 1;
      const bool rowwise = p.scaled == Scaled::kRowwise;
      a_scales_.back() = add(rowwise ? rows : Dims{}, DType::kF32,
                             [&](std::int64_t idx) { return scale_at(p, kScaleOfA, r, j, idx); });
      b_scales_.back() = add(rowwise ? Dims{1, n} : Dims{1}, DType::kF32,
                             [&](std::int64_t idx) { return scale_at(p, kScaleOfB, r, j, idx); });
    }
    if (p.bias)
      biases_.back() =
          add({n}, case_.out, [&](std::int64_t idx) { return value_of(id_of(kBias, r, j), idx, case_.out); });
    if (p.result_scale)
      result_scales_.back() = add({1}, DType::kF32, [&](std::int64_t) { return result_scale_at(p, r, j); });
  }

  RankContextOfTest& rank_;
  const Case& case_;
  std::deque<Guarded> tensors_;
  std::vector<TensorView> a_, b_;
  std::vector<std::optional<TensorView>> a_scales_, b_scales_, biases_, result_scales_;
};

/// One rank's own sum at `at`, and the error that f32 sums of its terms may have.
struct Sum {
  double value = 0;
  double error = 0;
};
Sum product_at(const Case& c, int rank, const Dims& at) {
  Sum sum;
  const std::int64_t n = c.sizes.back();
  const std::int64_t row = test::flat_index(c.sizes, at) / n;
  for (std::size_t j = 0; j < c.products.size(); ++j) {
    const Product& p = c.products[j];
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
    if (p.bias) value += value_of(id_of(kBias, rank, j), at.back(), c.out);
    sum.value += value * result_scale_at(p, rank, j);
    sum.error += static_cast<double>(k + 8) * (magnitude + 1) * std::ldexp(1.0, -24);
  }
  return sum;
}

/// Bound: one rounding of the result, one of each partial, and f32 sums.
void check_output(const Case& c, const Guarded& out, RankContextOfTest& rank, const std::string& who,
                  Complaints& complaints) {
  const int world = rank.group.size();
  const Shard mine = shard_of(c.sizes[c.dim], world, rank.group.rank());
  const double share = c.op == ReduceOp::kAvg ? 1.0 / world : 1.0;
  const DType partials = c.exact_partials ? DType::kF32 : c.out;
  for (std::int64_t idx = 0; idx < out.view().numel(); ++idx) {
    Dims at = test::position(out.view().sizes, idx);
    at[c.dim] += mine.offset;
    double need = 0;
    double bound = 0;
    double magnitude = 1;
    for (int q = 0; q < world; ++q) {
      const Sum part = product_at(c, q, at);
      need += part.value * share;
      bound += (test::rounding_error(partials, part.value) + part.error) * share;
      magnitude += std::abs(part.value);
    }
    bound += (world + 1) * std::ldexp(1.0, -24) * magnitude;   // of the sum over ranks
    bound = bound * 1.13 + test::rounding_error(c.out, need);  // f8 rounds by up to 1/8 of what it is given
    if (!(std::abs(out.at(idx) - need) <= bound)) {
      complaints.add(
          fmt::format("{}: out at {} is {}, need {} +- {}", who, to_string(at), out.at(idx), need, bound));
      return;
    }
  }
  if (!out.guards_are_whole()) complaints.add(who + ": a guard byte of out was written");
}

void check_product(const Case& c, const Guarded& product, int rank, const std::string& who,
                   Complaints& complaints) {
  for (std::int64_t idx = 0; idx < product.view().numel(); ++idx) {
    const Sum need = product_at(c, rank, test::position(c.sizes, idx));
    const double bound = test::rounding_error(c.out, need.value) + need.error * 1.13;
    if (std::abs(product.at(idx) - need.value) <= bound) continue;
    complaints.add(fmt::format("{}: product at {} is {}, need {} +- {}", who,
                               to_string(test::position(c.sizes, idx)), product.at(idx), need.value, bound));
    return;
  }
  if (!product.guards_are_whole()) complaints.add(who + ": a guard byte of product was written");
}

Result<void> run_case(RankContextOfTest& rank, const Case& c, Complaints& complaints) {
  Operands in(rank, c);
  std::vector<std::byte> out_bits;
  std::vector<std::byte> product_bits;
  for (const Algorithm algorithm : {Algorithm::kSerial, Algorithm::kPipelined}) {
    in.args.algorithm = algorithm;
    const std::string who = to_text(c, rank.group.size()) + " " + std::string(to_string(algorithm)) +
                            ", rank " + std::to_string(rank.group.rank());
    const auto layout = output_layout(in.args, rank.group.size(), rank.group.rank());
    if (!layout) return tl::unexpected(layout.error());
    Guarded out(rank.device, *layout, c.out);
    in.args.out = out.view();
    std::optional<Guarded> product;
    if (c.keeps_product) in.args.product = product.emplace(rank.device, c.sizes, c.out).view();
    const auto report = fused_scaled_matmul_reduce_scatter(in.args, rank.group, rank.stream);
    if (!report) return tl::unexpected(Error(report.error().code(), who + ": " + report.error().text()));
    if (report->algorithm != algorithm)
      complaints.add(who + ": ran " + std::string(to_string(report->algorithm)));
    if (auto done = rank.stream.synchronize(); !done) return done;

    out.download();
    check_output(c, out, rank, who, complaints);
    if (product) {
      product->download();
      check_product(c, *product, rank.group.rank(), who, complaints);
    }
    if (algorithm == Algorithm::kSerial) {
      out_bits = out.bytes();
      if (product) product_bits = product->bytes();
      continue;
    }
    if (out_bits != out.bytes()) complaints.add(who + ": out has other bits than by serial");
    if (product && product_bits != product->bytes())
      complaints.add(who + ": product has other bits than by serial");
  }
  return {};
}

void run_all(const JobCase& job, const std::vector<Case>& cases) {
  Complaints complaints;
  test::on_ranks(job, test::quick_config(), complaints, [&](RankContextOfTest& rank) -> Result<void> {
    for (const Case& c : cases) {
      if (auto ran = run_case(rank, c, complaints); !ran) return ran;
    }
    return test::check_pads(rank, complaints);
  });
  EXPECT_EQ(complaints.text(), "");
}

class ScaledMatmulReduceScatter : public ::testing::TestWithParam<JobCase> {};

TEST_P(ScaledMatmulReduceScatter, every_scale_and_dim) {
  std::vector<Case> cases;
  for (const Scaled scaled : {Scaled::kTensorwise, Scaled::kRowwise, Scaled::kNo}) {
    for (const Dims& sizes : {Dims{16, 24}, Dims{8, 16, 24}, Dims{2, 8, 8, 16}}) {
      for (int dim = 0; dim < sizes.size(); ++dim) {
        cases.push_back({.sizes = sizes,
                         .dim = dim,
                         .out = dim % 2 == 0 ? DType::kBF16 : DType::kF32,
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
      cases.push_back({.sizes = {n, m}, .dim = 1, .out = DType::kF32, .products = rowwise});
      cases.push_back(
          {.sizes = {3, m, n}, .dim = 1, .out = DType::kF16, .products = {{.k = 0}}, .keeps_product = true});
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
                         .out = op == ReduceOp::kSum ? DType::kBF16 : DType::kF16,
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
                         .out = out,
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
