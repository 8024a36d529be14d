#include <gtest/gtest.h>

#include <vector>

#include "conformance/fused_plain_cases.hpp"
#include "conformance/fused_scaled_cases.hpp"

// fused_matmul_all_reduce and fused_scaled_matmul_all_reduce against float64, as
// fused_matmul_reduce_scatter_test.cpp. All ranks get the same bits, and on CPUs all algorithms do.

namespace tandem {
namespace {

using coll::ReduceOp;
using test::JobCase;
using test::PlainCase;
using test::Scaled;
using test::ScaledCase;
using test::ScaledProduct;

class MatmulAllReduce : public ::testing::TestWithParam<JobCase> {
 protected:
  static void run_all(std::vector<PlainCase> cases) {
    for (PlainCase& one : cases) one.to_all = true;
    test::run_scatters<test::PlainOperands<MatmulAllReduceArgs>>(GetParam(), cases, fused_matmul_all_reduce);
  }
  static void run_all(std::vector<ScaledCase> cases) {
    for (ScaledCase& one : cases) one.to_all = true;
    test::run_scatters<test::ScaledOperands<ScaledMatmulAllReduceArgs>>(GetParam(), cases,
                                                                        fused_scaled_matmul_all_reduce);
  }
};

TEST_P(MatmulAllReduce, every_dtype_and_shape) {
  std::vector<PlainCase> cases;
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    for (const Dims& sizes : {Dims{16, 24}, Dims{8, 16, 24}, Dims{2, 8, 8, 16}}) {
      for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAvg}) {
        for (const bool bias : {false, true})
          cases.push_back({.sizes = sizes, .dtype = dtype, .k = {40}, .op = op, .bias = bias});
      }
    }
  }
  run_all(cases);
}

// Where there are more ranks than rows, some have none.
TEST_P(MatmulAllReduce, odd_and_empty_sizes) {
  std::vector<PlainCase> cases;
  for (std::int64_t m = 0; m < 10; ++m) {
    for (const std::int64_t n : {0, 1, 7}) {
      cases.push_back({.sizes = {m, n}, .dtype = DType::kBF16, .k = {5}, .bias = m % 2 == 0});
      cases.push_back({.sizes = {m, n}, .k = {5}, .bias = m % 2 == 1});
      cases.push_back({.sizes = {3, m, n}, .dtype = DType::kF16, .k = {0}, .keeps_product = m % 3 == 0});
      cases.push_back({.sizes = {1, m, n}, .dtype = DType::kBF16, .k = {4, 3}});
    }
  }
  run_all(cases);
}

// Results of more than a small exchange takes, and parts that are cut in rounds.
TEST_P(MatmulAllReduce, large_results) {
  std::vector<PlainCase> cases;
  const std::int64_t world = GetParam().ranks.size;
  for (const std::int64_t rows : {512 * world + 3, 1024 * world, 600 * world - 1}) {
    cases.push_back({.sizes = {rows, 24}, .k = {4}, .bias = rows % 2 == 0});
    cases.push_back({.sizes = {rows, 40}, .dtype = DType::kBF16, .k = {4, 2}, .op = ReduceOp::kAvg});
  }
  cases.push_back({.sizes = {2, 700 * world, 8}, .dtype = DType::kF16, .k = {5}, .keeps_product = true});
  run_all(cases);
}

TEST_P(MatmulAllReduce, lists_bias_product_partials_and_strides) {
  std::vector<PlainCase> cases;
  for (const bool exact : {false, true}) {
    for (const std::vector<std::int64_t>& k :
         {std::vector<std::int64_t>{9}, std::vector<std::int64_t>{9, 1, 20}}) {
      for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAvg}) {
        for (const bool shuffled : {false, true}) {
          // Ranks agree on sizes, not on k. Hosts do not wait for each other in a problem that they know, and
          // on one GPU a rank that loads a kernel may then wait for another's that waits for this rank.
          const std::int64_t n = (k.size() == 1 ? 17 : 18) + (shuffled ? 2 : 0);
          cases.push_back({.sizes = {11, 13, n},
                           .dtype = DType::kBF16,
                           .k = k,
                           .op = op,
                           .bias = true,
                           .keeps_product = true,
                           .spread = !shuffled,
                           .shuffled = shuffled,
                           .exact_partials = exact});
        }
      }
    }
  }
  run_all(cases);
}

// By one kernel on GPUs, where each rank gets all partials.
TEST_P(MatmulAllReduce, few_rows) {
  std::vector<PlainCase> cases;
  for (const std::int64_t rows : {1, 2, 65, 200, 513}) {
    for (const std::int64_t n : {8, 264}) {
      const bool is_odd = (rows + n / 8) % 2 == 1;
      cases.push_back({.sizes = {rows, n},
                       .dtype = is_odd ? DType::kBF16 : DType::kF16,
                       .k = {24},
                       .is_even = n != 264,
                       .b_by_columns = rows % 4 != 0,
                       .op = rows % 3 == 0 ? ReduceOp::kAvg : ReduceOp::kSum,
                       .bias = rows % 2 == 0,
                       .keeps_product = n == 264});
    }
  }
  run_all(cases);
}

TEST_P(MatmulAllReduce, scaled) {
  std::vector<ScaledCase> cases;
  for (const Scaled scaled : {Scaled::kTensorwise, Scaled::kRowwise, Scaled::kFlatRows, Scaled::kNo}) {
    for (const Dims& sizes : {Dims{16, 24}, Dims{8, 16, 24}, Dims{3, 5, 7, 16}}) {
      for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAvg}) {
        const DType out = op == ReduceOp::kSum ? DType::kBF16 : DType::kF32;
        cases.push_back({.sizes = sizes,
                         .dtype = out,
                         .products = {{.k = 32, .scaled = scaled, .a = DType::kF8E5M2}},
                         .op = op});
      }
    }
  }
  for (const std::int64_t m : {0, 1, 2, 5, 9}) {
    for (const std::int64_t n : {0, 1, 7}) {
      cases.push_back(
          {.sizes = {m, n}, .products = {{.k = 5, .scaled = Scaled::kRowwise, .bias = m % 2 == 0}}});
      cases.push_back(
          {.sizes = {3, m, n}, .dtype = DType::kF16, .products = {{.k = 0}}, .keeps_product = true});
    }
  }
  run_all(cases);
}

// In one exchange, and as a scatter and a gather.
TEST_P(MatmulAllReduce, scaled_by_native_kernels) {
  const std::int64_t world = GetParam().ranks.size;
  run_all(test::native_scaled_cases({3 * world + 1, 200, 520}, 72));
}

TEST_P(MatmulAllReduce, lists_of_scaled_and_plain_products) {
  const std::vector<ScaledProduct> mixed = {
      {.k = 9, .scaled = Scaled::kRowwise, .bias = true, .result_scale = true},
      {.k = 1, .scaled = Scaled::kNo, .a = DType::kBF16, .b = DType::kBF16, .bias = true},
      {.k = 20, .scaled = Scaled::kTensorwise, .a = DType::kF8E5M2, .result_scale = true},
      {.k = 4, .scaled = Scaled::kNo, .a = DType::kF32, .b = DType::kF32, .result_scale = true}};
  std::vector<ScaledCase> cases;
  for (const bool exact : {false, true}) {
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAvg}) {
      cases.push_back({.sizes = {7, 11, 10},
                       .dtype = op == ReduceOp::kSum ? DType::kBF16 : DType::kF16,
                       .products = mixed,
                       .op = op,
                       .keeps_product = true,
                       .spread = true,
                       .exact_partials = exact});
    }
    for (const DType out : {DType::kF8E4M3, DType::kF8E5M2}) {
      cases.push_back({.sizes = {9, 10},
                       .dtype = out,
                       .products = {{.scaled = Scaled::kRowwise, .bias = true}, {.k = 2}},
                       .keeps_product = true,
                       .exact_partials = exact});
    }
  }
  run_all(cases);
}

INSTANTIATE_TEST_SUITE_P(Ranks, MatmulAllReduce, ::testing::ValuesIn(test::all_cases({1, 2, 3, 4, 8})),
                         test::job_name);

}  // namespace
}  // namespace tandem
