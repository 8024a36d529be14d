#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "conformance/fused_plain_cases.hpp"

// fused_matmul_reduce_scatter against float64, for every backend x algorithm x dtype x dim x number of ranks:
// as fused_all_gather_matmul_test.cpp.

namespace tandem {
namespace {

using coll::ReduceOp;
using test::JobCase;

using Case = test::PlainCase;

void run_all(const JobCase& job, const std::vector<Case>& cases) {
  test::run_scatters<test::PlainOperands<MatmulReduceScatterArgs>>(job, cases, fused_matmul_reduce_scatter);
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

/// Shapes that native kernels multiply.
std::vector<Case> native_cases(const std::vector<std::int64_t>& rows) {
  std::vector<Case> cases;
  for (const std::int64_t m : rows) {
    for (const std::int64_t n : {8, 264}) {
      const bool is_odd = (m + n / 8) % 2 == 1;
      cases.push_back({.sizes = {m, n},
                       .dim = 0,
                       .dtype = is_odd ? DType::kBF16 : DType::kF16,
                       .k = {24},
                       .is_even = n != 264,
                       .b_by_columns = m % 4 != 0,
                       .op = m % 3 == 0 ? ReduceOp::kAvg : ReduceOp::kSum,
                       .bias = m % 2 == 0,
                       .keeps_product = n == 264});
    }
  }
  return cases;
}

// A tile has rows of several ranks.
TEST_P(MatmulReduceScatter, few_rows_share_tiles) {
  const std::int64_t world = GetParam().ranks.size;
  run_all(GetParam(), native_cases({world, 3 * world + 1, 65, 200, 512}));
}

// Tiles begin with the rows of their rank.
TEST_P(MatmulReduceScatter, many_rows_have_tiles_by_owners) {
  run_all(GetParam(), native_cases({513, 1027}));
}

// Whatever their tiles are, in tiles that ranks share and in those by owners.
TEST_P(MatmulReduceScatter, by_each_native_kernel) {
  const JobCase& job = GetParam();
  if (job.ranks.placement.kind == DeviceKind::kCpu || job.ranks.size < 2 || job.ranks.size > 3)
    GTEST_SKIP() << "kernels of two and three GPUs are looked at";
  constexpr std::int64_t kWidth = 384;  // pairs of tiles of 64 and of 192 columns; the others end outside
  for (const char* kernel :
       {"t 128x256 2x1", "t 128x224 2x1", "t 128x192 1x2", "t 128x128 1x1", "t 128x64 1x2", "n 128x256 2x1",
        "n 128x224 2x1", "n 128x192 2x1", "n 128x128 2x1", "n 128x128 1x1"}) {
    Config config = test::quick_config();
    config.native_kernel = std::string("bf16 ") + kernel;
    std::vector<Case> cases;
    for (const std::int64_t m : test::rows_of_kernel(kernel, job.ranks.size)) {
      cases.push_back({.sizes = {m, kWidth},
                       .dim = 0,
                       .dtype = DType::kBF16,
                       .k = {40},
                       .is_even = true,
                       .b_by_columns = kernel[0] == 't',
                       .bias = true});
    }
    const int given = test::run_scatters<test::PlainOperands<MatmulReduceScatterArgs>>(
        job, cases, fused_matmul_reduce_scatter, config);
    EXPECT_EQ(given, static_cast<int>(cases.size()) * job.ranks.size) << kernel;
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, MatmulReduceScatter, ::testing::ValuesIn(test::all_cases({1, 2, 3, 4, 8})),
                         test::job_name);

}  // namespace
}  // namespace tandem
