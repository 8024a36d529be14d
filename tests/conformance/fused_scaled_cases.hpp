#pragma once

#include <fmt/format.h>

#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "conformance/fused_scatter_cases.hpp"

// Cases of sums over ranks of scaled products, and one rank's operands of them: of
// ScaledMatmulReduceScatterArgs or ScaledMatmulAllReduceArgs.

namespace tandem::test {

/// kFlatRows: row-wise, by a scale [rows, 1] whatever dims a has.
enum class Scaled { kNo, kTensorwise, kRowwise, kFlatRows };

struct ScaledProduct {
  std::int64_t k = 6;    ///< rank r has r more
  bool is_even = false;  ///< it has not, and b is column-major: what native kernels multiply
  Scaled scaled = Scaled::kTensorwise;
  DType a = DType::kF8E4M3;
  DType b = DType::kF8E4M3;
  bool bias = false;
  bool result_scale = false;

  [[nodiscard]] std::int64_t k_of(int rank) const { return is_even ? k : k + rank; }
};

struct ScaledCase {
  Dims sizes;  ///< of the product: [..., n]
  int dim = 0;
  DType dtype = DType::kBF16;  ///< of out
  std::vector<ScaledProduct> products = {{}};
  coll::ReduceOp op = coll::ReduceOp::kSum;
  bool keeps_product = false;
  bool spread = false;
  bool exact_partials = false;  ///< partials travel as f32
  bool to_all = false;          ///< an all-reduce
  bool fast_accum = false;

  [[nodiscard]] std::string text(int world, Algorithm algorithm) const;
};

inline std::string ScaledCase::text(int world, Algorithm algorithm) const {
  std::string all =
      fmt::format("scaled_matmul_{} {} {} dim {} {} w{}", to_all ? "all_reduce" : "reduce_scatter",
                  to_string(dtype), to_string(sizes), dim, to_string(op), world);
  for (const ScaledProduct& p : products) {
    all += fmt::format(" {}*{} k {}{}{}{}", to_string(p.a), to_string(p.b), p.k,
                       p.scaled == Scaled::kRowwise    ? " row-wise"
                       : p.scaled == Scaled::kFlatRows ? " flat row-wise"
                                                       : "",
                       p.bias ? " bias" : "", p.result_scale ? " result_scale" : "");
  }
  return all + (fast_accum ? " fast" : "") + (spread ? " spread" : "") +
         (exact_partials ? " f32 partials " : " ") + std::string(to_string(algorithm));
}

/// What native kernels multiply.
inline std::vector<ScaledCase> native_scaled_cases(const std::vector<std::int64_t>& rows, std::int64_t n,
                                                   const std::vector<Scaled>& kinds = {
                                                       Scaled::kTensorwise, Scaled::kRowwise,
                                                       Scaled::kFlatRows, Scaled::kNo}) {
  std::vector<ScaledCase> cases;
  for (const std::int64_t m : rows) {
    for (const Scaled scaled : kinds) {
      const bool is_odd = cases.size() % 2 == 1;
      cases.push_back(
          {.sizes = {m, n},
           .products =
               {{.k = 144, .is_even = true, .scaled = scaled, .bias = m % 3 != 0, .result_scale = is_odd}},
           .op = m % 3 == 0 ? coll::ReduceOp::kAvg : coll::ReduceOp::kSum,
           .keeps_product = m % 2 == 0,
           .fast_accum = (m % 2 == 1) != is_odd});
    }
  }
  return cases;
}

/// One rank's tensors of a case, and all ranks' products in f64.
template <class Args>
class ScaledOperands {
 public:
  ScaledOperands(RankContextOfTest& rank, const ScaledCase& c)
      : products_(static_cast<std::size_t>(rank.group.size())) {
    for (int q = 0; q < rank.group.size(); ++q) {
      for (std::size_t j = 0; j < c.products.size(); ++j) add_product(rank, c, q, j);
    }
    args.a = a_;
    args.b = b_;
    args.a_scale = a_scales_;
    args.b_scale = b_scales_;
    args.bias = biases_;
    args.result_scale = result_scales_;
    if constexpr (requires { args.scatter_dim; }) args.scatter_dim = c.dim;
    args.reduce_op = c.op;
    args.fast_accum = c.fast_accum;
    if (c.exact_partials) args.partials = DType::kF32;
  }

  [[nodiscard]] harness::Expected product_at(int rank, std::int64_t row, std::int64_t column,
                                             bool in_steps) const {
    std::vector<harness::Expected> products;
    products.reserve(args.b.size());
    for (const harness::ProductReference& product : products_[static_cast<std::size_t>(rank)])
      products.push_back(product.sum_at(row, column));
    return in_steps ? harness::sum_in_steps(products, args.out.dtype) : harness::sum_in_f32(products);
  }
  [[nodiscard]] static double added_at(std::int64_t /*column*/) { return 0; }

  Args args;

 private:
  /// Product `j` of rank `q`.
  void add_product(RankContextOfTest& rank, const ScaledCase& c, int q, std::size_t j) {
    const ScaledProduct& p = c.products[j];
    const std::int64_t n = c.sizes.back();
    std::deque<Tensor> held;
    const auto seed = [&] {
      return static_cast<int>(1000 * held.size() + 100 * static_cast<std::size_t>(q) + j);
    };
    const auto values = [&](const Dims& sizes, DType dtype) {
      return held.emplace_back(generated(sizes, dtype, seed())).view();
    };
    const auto scale = [&](const Dims& sizes) {
      return held.emplace_back(generated_scale(sizes, seed())).view();
    };
    harness::ProductTensors tensors{.a = values(with_last(c.sizes, p.k_of(q)), p.a),
                                    .b = values({p.k_of(q), n}, p.b),
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
      const Layout layout = c.spread ? spread_out(from->sizes) : dense(from->sizes);
      return tensors_.emplace_back(rank.device, layout, *from).view();
    };
    a_.push_back(*load(tensors.a));
    b_.push_back(p.is_even ? load(tensors.b.movedim(0, 1))->movedim(0, 1) : *load(tensors.b));
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

}  // namespace tandem::test
