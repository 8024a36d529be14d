#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <string>
#include <vector>

#include "conformance/fused_scatter_cases.hpp"
#include "harness/operands.hpp"
#include "harness/problem.hpp"
#include "harness/reference.hpp"

// fused_matmul_reduce_scatter against float64, for every backend x algorithm x dtype x dim x number of ranks:
// as fused_all_gather_matmul_test.cpp.

namespace tandem {
namespace {

using coll::ReduceOp;
using harness::Problem;
using test::JobCase;
using test::RankContextOfTest;
using test::with_last;

struct Case {
  Dims sizes;  ///< of the product: [..., n]
  int dim = 0;
  DType dtype = DType::kF32;
  std::vector<std::int64_t> k = {6};  ///< of each rank's part of each product; the last rank's has one less
  ReduceOp op = ReduceOp::kSum;
  bool bias = false;
  bool keeps_product = false;
  bool spread = false;
  bool exact_partials = false;  ///< partials travel as f32

  [[nodiscard]] Problem problem(int world, std::size_t j) const;
  [[nodiscard]] std::string text(int world, Algorithm algorithm) const;
};

/// Product `j` as a problem of its own.
Problem Case::problem(int world, std::size_t j) const {
  Problem one;
  one.op = harness::Op::kMatmulReduceScatter;
  one.a = with_last(sizes, std::max<std::int64_t>(0, k[j] * world - (world > 1 ? 1 : 0)));
  one.n = {sizes.back()};
  one.dtype = dtype;
  one.dim = dim;
  one.ranks = world;
  one.reduce = op;
  one.bias = bias;
  one.seed = j + 1;
  return one;
}

/// The first product as the tool takes it, and what only the test does with it.
std::string Case::text(int world, Algorithm algorithm) const {
  Problem first = problem(world, 0);
  first.algorithm = algorithm;
  std::string all = "--problem " + to_line(first);
  for (std::size_t j = 1; j < k.size(); ++j) all += fmt::format(" (and k={} of seed {})", k[j], j + 1);
  return all + (keeps_product ? " (product kept)" : "") + (spread ? " (spread out)" : "") +
         (exact_partials ? " (f32 partials)" : "");
}

/// One rank's tensors of a case, and all ranks' in f64.
struct Operands {
  Operands(RankContextOfTest& rank, const Case& c) {
    for (std::size_t j = 0; j < c.k.size(); ++j) {
      const Problem problem = c.problem(rank.group.size(), j);
      const harness::GeneratedTensors source(problem);
      references.emplace_back(problem, source);
      const harness::OperandMemory memory{rank.device, harness::HostImage::kAlways, c.spread ? 2 : 1};
      tensors.emplace_back(problem, source, rank.group.rank(), memory);
      a.push_back(tensors.back().a().view());
      b.push_back(tensors.back().b()[0]);
    }
    args = tensors.front().scatter_args();
    args.a = a;
    args.b = b;
    if (c.exact_partials) args.partials = DType::kF32;
  }

  [[nodiscard]] harness::Expected product_at(int rank, std::int64_t row, std::int64_t column,
                                             bool in_steps) const {
    std::vector<harness::Expected> products;
    for (const harness::Reference& reference : references)
      products.push_back(reference.partial_sum(rank, 0, row, column));
    return in_steps ? harness::sum_in_steps(products, args.out.dtype) : harness::sum_in_f32(products);
  }
  [[nodiscard]] double added_at(std::int64_t column) const { return references.front().bias_at(0, column); }

  std::deque<harness::RankOperands> tensors;   ///< of each product
  std::vector<harness::Reference> references;  ///< the same
  std::vector<TensorView> a, b;
  MatmulReduceScatterArgs args;
};

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
