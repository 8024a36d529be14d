#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "conformance/fused_scaled_cases.hpp"

// fused_scaled_matmul_reduce_scatter against float64 from the same f8 bits, as
// fused_matmul_reduce_scatter_test.cpp: the product is N-D, so whatever dim is scattered, a rank gets that
// dim's shard of each batch.

namespace tandem {
namespace {

using coll::ReduceOp;
using test::JobCase;
using test::Scaled;

using Case = test::ScaledCase;
using Product = test::ScaledProduct;

void run_all(const JobCase& job, const std::vector<Case>& cases) {
  test::run_scatters<test::ScaledOperands<ScaledMatmulReduceScatterArgs>>(job, cases,
                                                                          fused_scaled_matmul_reduce_scatter);
}

class ScaledMatmulReduceScatter : public ::testing::TestWithParam<JobCase> {};

TEST_P(ScaledMatmulReduceScatter, every_scale_and_dim) {
  std::vector<Case> cases;
  for (const Scaled scaled : {Scaled::kTensorwise, Scaled::kRowwise, Scaled::kFlatRows, Scaled::kNo}) {
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

// A shard of 3 rows: each destination's piece of the scale begins at another alignment. 4-D operands are
// scattered along a dim in the middle and along the last. Every case runs again, with the same list of sizes.
TEST_P(ScaledMatmulReduceScatter, pieces_of_scales_at_any_address) {
  const std::int64_t world = GetParam().ranks.size;
  std::vector<Case> cases;
  for (const Dims& sizes : {Dims{1, 3 * world, 8}, Dims{2, 3 * world, 8}, Dims{2, 3, 3 * world, 7}}) {
    for (int dim = 0; dim < sizes.size(); ++dim) {
      for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAvg}) {
        cases.push_back({.sizes = sizes,
                         .dim = dim,
                         .products = {{.k = 16, .scaled = Scaled::kRowwise, .bias = true}},
                         .op = op,
                         .exact_partials = op == ReduceOp::kAvg});
      }
    }
  }
  const std::vector<Case> again = cases;
  cases.insert(cases.end(), again.begin(), again.end());
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
    cases.push_back({.sizes = {7, 11, 10},
                     .dim = dim,
                     .products = {{.scaled = Scaled::kFlatRows}, {.scaled = Scaled::kTensorwise}},
                     .spread = true});
    // A plain product whose operands have another type than what it is added to.
    if (dim < 2) cases.push_back({.sizes = {9, 10}, .dim = dim, .dtype = DType::kF16, .products = mixed});
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

// A tile has rows of several ranks.
TEST_P(ScaledMatmulReduceScatter, few_rows_share_tiles) {
  const std::int64_t world = GetParam().ranks.size;
  run_all(GetParam(), test::native_scaled_cases({3 * world + 1, 200, 509}, 72));
}

// Tiles begin with the rows of their rank.
TEST_P(ScaledMatmulReduceScatter, many_rows_have_tiles_by_owners) {
  run_all(GetParam(), test::native_scaled_cases({513, 1028}, 264));
}

// Whatever their tiles are, in tiles that ranks share and in those by owners.
TEST_P(ScaledMatmulReduceScatter, by_each_native_kernel) {
  const JobCase& job = GetParam();
  if (job.ranks.placement.kind == DeviceKind::kCpu || job.ranks.size < 2 || job.ranks.size > 3)
    GTEST_SKIP() << "kernels of two and three GPUs are looked at";
  for (const char* kernel : {"t 128x256 2x1", "t 128x224 2x1", "t 128x128 1x1", "exact t 128x128 1x1"}) {
    Config config = test::quick_config();
    config.native_kernel = std::string("f8e4m3 ") + kernel;
    std::vector<Case> cases =
        test::native_scaled_cases(test::rows_of_kernel(kernel, job.ranks.size), 280, {Scaled::kRowwise});
    for (Case& one : cases) one.fast_accum = kernel[0] == 't';
    const int given = test::run_scatters<test::ScaledOperands<ScaledMatmulReduceScatterArgs>>(
        job, cases, fused_scaled_matmul_reduce_scatter, config);
    EXPECT_EQ(given, static_cast<int>(cases.size()) * job.ranks.size) << kernel;
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, ScaledMatmulReduceScatter,
                         ::testing::ValuesIn(test::all_cases({1, 2, 3, 4, 8})), test::job_name);

}  // namespace
}  // namespace tandem
