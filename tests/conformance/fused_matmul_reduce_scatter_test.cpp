#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "conformance/fused_harness.hpp"

// fused_matmul_reduce_scatter against float64, for every backend x algorithm x dtype x dim x number of ranks:
// as fused_all_gather_matmul_test.cpp.

namespace tandem {
namespace {

using coll::ReduceOp;
using test::Complaints;
using test::Guarded;
using test::JobCase;
using test::RankContextOfTest;
using test::value_of;

struct Case {
  Dims sizes;  ///< of the product: [..., n]
  int dim = 0;
  DType dtype = DType::kF32;
  std::vector<std::int64_t> k = {6};  ///< of each product; rank r has r more
  ReduceOp op = ReduceOp::kSum;
  bool bias = false;
  bool product = false;
  bool spread = false;
  bool exact_partials = false;  ///< partials travel as f32
};

std::string to_text(const Case& c, int world) {
  std::string text = fmt::format("matmul_reduce_scatter {} {} dim {} {} w{} k", to_string(c.dtype),
                                 to_string(c.sizes), c.dim, to_string(c.op), world);
  for (const auto k : c.k) text += fmt::format(" {}", k);
  return text + (c.bias ? " bias" : "") + (c.product ? " product" : "") + (c.spread ? " spread" : "") +
         (c.exact_partials ? " f32 partials" : "");
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
      Dims left = c.sizes;
      left[left.size() - 1] = k;
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

/// The sum of one rank's products at `at`, and of the absolute values of its terms.
struct Sum {
  double value = 0;
  double magnitude = 0;
};
Sum product_at(const Case& c, int rank, const Dims& at) {
  Sum sum;
  for (std::size_t j = 0; j < c.k.size(); ++j) {
    const std::int64_t k = c.k[j] + rank;
    Dims sizes = c.sizes;
    sizes[sizes.size() - 1] = k;
    for (std::int64_t i = 0; i < k; ++i) {
      Dims from = at;
      from[from.size() - 1] = i;
      const double term = value_of(id_of_a(rank, j), test::flat_index(sizes, from), c.dtype) *
                          value_of(id_of_b(rank, j), i * c.sizes.back() + at.back(), c.dtype);
      sum.value += term;
      sum.magnitude += std::abs(term);
    }
  }
  return sum;
}

/// Bound: one rounding of the result, one of each partial, and f32 sums.
void check_output(const Case& c, const Guarded& out, RankContextOfTest& rank, const std::string& who,
                  Complaints& complaints) {
  const int world = rank.group.size();
  const Shard mine = shard_of(c.sizes[c.dim], world, rank.group.rank());
  const double share = c.op == ReduceOp::kAvg ? 1.0 / world : 1.0;
  const double partial_epsilon = test::epsilon_of(c.exact_partials ? DType::kF32 : c.dtype);
  for (std::int64_t idx = 0; idx < out.view().numel(); ++idx) {
    Dims at = test::position(out.view().sizes, idx);
    at[c.dim] += mine.offset;
    double need = 0;
    double bound = 0;
    for (int q = 0; q < world; ++q) {
      const Sum part = product_at(c, q, at);
      need += part.value * share;
      bound +=
          (std::abs(part.value) * partial_epsilon + (part.magnitude + 1) * 60 * std::ldexp(1.0, -24)) * share;
    }
    if (c.bias) need += value_of(kBias, at.back(), c.dtype);
    bound = bound * 1.02 + test::epsilon_of(c.dtype) * (std::abs(need) + 1e-3) * 1.02 + std::ldexp(1.0, -20);
    if (!(std::abs(out.at(idx) - need) <= bound)) {
      complaints.add(who + ": out at " + to_string(at) + " is " + std::to_string(out.at(idx)) + ", need " +
                     std::to_string(need) + " +- " + std::to_string(bound));
      return;
    }
  }
  if (!out.guards_are_whole()) complaints.add(who + ": a guard byte of out was written");
}

void check_product(const Case& c, const Guarded& product, int rank, const std::string& who,
                   Complaints& complaints) {
  for (std::int64_t idx = 0; idx < product.view().numel(); ++idx) {
    const Sum need = product_at(c, rank, test::position(c.sizes, idx));
    const double bound = test::epsilon_of(c.dtype) * (std::abs(need.value) + 1e-3) * 1.02 +
                         (need.magnitude + 1) * 60 * std::ldexp(1.0, -24);
    if (std::abs(product.at(idx) - need.value) <= bound) continue;
    complaints.add(who + ": product at " + to_string(test::position(c.sizes, idx)) + " is " +
                   std::to_string(product.at(idx)) + ", need " + std::to_string(need.value));
    return;
  }
  if (!product.guards_are_whole()) complaints.add(who + ": a guard byte of product was written");
}

Result<void> run_case(RankContextOfTest& rank, const Case& c, bool same_bits, Complaints& complaints) {
  Operands in(rank, c);
  std::vector<std::byte> out_bits;
  std::vector<std::byte> product_bits;
  for (const Algorithm algorithm : {Algorithm::kSerial, Algorithm::kPipelined}) {
    in.args.algorithm = algorithm;
    const std::string who = to_text(c, rank.group.size()) + " " + std::string(to_string(algorithm)) +
                            ", rank " + std::to_string(rank.group.rank());
    const auto layout = output_layout(in.args, rank.group.size(), rank.group.rank());
    if (!layout) return tl::unexpected(layout.error());
    Guarded out(rank.device, *layout, c.dtype);
    in.args.out = out.view();
    std::optional<Guarded> product;
    if (c.product) {
      product.emplace(rank.device, c.sizes, c.dtype);
      in.args.product = product->view();
    }
    const auto report = fused_matmul_reduce_scatter(in.args, rank.group, rank.stream);
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
    if (!same_bits) continue;
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
      if (auto ran = run_case(rank, c, !job.vendor_products, complaints); !ran) return ran;
    }
    return test::check_pads(rank, complaints);
  });
  EXPECT_EQ(complaints.text(), "");
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
      cases.push_back({.sizes = {3, m, n}, .dim = 1, .dtype = DType::kF16, .k = {0}, .product = m % 3 == 0});
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
                           .product = true,
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
