#include <fmt/format.h>
#include <gtest/gtest.h>

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
using test::Guarded;
using test::JobCase;
using test::RankContextOfTest;
using test::with_last;

/// kFlatRows: row-wise, by a scale [rows, 1] whatever dims a has.
enum class Scaled { kNo, kTensorwise, kRowwise, kFlatRows };

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
                       p.scaled == Scaled::kRowwise    ? " row-wise"
                       : p.scaled == Scaled::kFlatRows ? " flat row-wise"
                                                       : "",
                       p.bias ? " bias" : "", p.result_scale ? " result_scale" : "");
  }
  return all + (spread ? " spread" : "") + (exact_partials ? " f32 partials " : " ") +
         std::string(to_string(algorithm));
}

/// One rank's tensors of a case, and all ranks' products in f64.
class Operands {
 public:
  Operands(RankContextOfTest& rank, const Case& c) : products_(static_cast<std::size_t>(rank.group.size())) {
    for (int q = 0; q < rank.group.size(); ++q) {
      for (std::size_t j = 0; j < c.products.size(); ++j) add_product(rank, c, q, j);
    }
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

  [[nodiscard]] harness::Expected product_at(int rank, std::int64_t row, std::int64_t column,
                                             bool in_steps) const {
    std::vector<harness::Expected> products;
    for (const harness::ProductReference& product : products_[static_cast<std::size_t>(rank)])
      products.push_back(product.sum_at(row, column));
    return in_steps ? harness::sum_in_steps(products, args.out.dtype) : harness::sum_in_f32(products);
  }
  [[nodiscard]] static double added_at(std::int64_t /*column*/) { return 0; }

  ScaledMatmulReduceScatterArgs args;

 private:
  /// Product `j` of rank `q`.
  void add_product(RankContextOfTest& rank, const Case& c, int q, std::size_t j) {
    const Product& p = c.products[j];
    const std::int64_t n = c.sizes.back();
    std::deque<Tensor> held;
    const auto seed = [&] {
      return static_cast<int>(1000 * held.size() + 100 * static_cast<std::size_t>(q) + j);
    };
    const auto values = [&](const Dims& sizes, DType dtype) {
      return held.emplace_back(test::generated(sizes, dtype, seed())).view();
    };
    const auto scale = [&](const Dims& sizes) {
      return held.emplace_back(test::generated_scale(sizes, seed())).view();
    };
    harness::ProductTensors tensors{.a = values(with_last(c.sizes, p.k + q), p.a),
                                    .b = values({p.k + q, n}, p.b),
                                    .by_tensor_cores = rank.device.id().kind == DeviceKind::kCuda};
    if (p.scaled != Scaled::kNo) {
      const bool rowwise = p.scaled != Scaled::kTensorwise;
      tensors.a_scale = scale(rowwise ? with_last(c.sizes, 1) : Dims{});
      tensors.b_scale = scale(rowwise ? Dims{1, n} : Dims{1});
    }
    if (p.bias) tensors.bias = values({n}, c.dtype);
    if (p.result_scale) tensors.result_scale = scale({1});
    products_[static_cast<std::size_t>(q)].emplace_back(tensors);
    if (q != rank.group.rank()) return;

    const auto load = [&](const std::optional<TensorView>& from) -> std::optional<TensorView> {
      if (!from) return {};
      const Layout layout = c.spread ? test::spread_out(from->sizes) : test::dense(from->sizes);
      return tensors_.emplace_back(rank.device, layout, *from).view();
    };
    a_.push_back(*load(tensors.a));
    b_.push_back(*load(tensors.b));
    a_scales_.push_back(
        load(p.scaled == Scaled::kFlatRows ? tensors.a_scale->flatten_rows() : tensors.a_scale));
    b_scales_.push_back(load(tensors.b_scale));
    biases_.push_back(load(tensors.bias));
    result_scales_.push_back(load(tensors.result_scale));
  }

  std::vector<std::vector<harness::ProductReference>> products_;  ///< of each rank
  std::deque<Guarded> tensors_;
  std::vector<TensorView> a_, b_;
  std::vector<std::optional<TensorView>> a_scales_, b_scales_, biases_, result_scales_;
};

void run_all(const JobCase& job, const std::vector<Case>& cases) {
  test::run_scatters<Operands>(job, cases, fused_scaled_matmul_reduce_scatter);
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
                         ::testing::ValuesIn(test::all_cases({1, 2, 3, 4, 8})), test::job_name);

}  // namespace
}  // namespace tandem
