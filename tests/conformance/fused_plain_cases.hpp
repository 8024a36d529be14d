#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <string>
#include <type_traits>
#include <vector>

#include "conformance/fused_scatter_cases.hpp"
#include "harness/operands.hpp"
#include "harness/problem.hpp"
#include "harness/reference.hpp"

// Cases of sums over ranks of plain products, and one rank's operands of them: of MatmulReduceScatterArgs or
// MatmulAllReduceArgs.

namespace tandem::test {

struct PlainCase {
  Dims sizes;  ///< of the product: [..., n]
  int dim = 0;
  DType dtype = DType::kF32;
  std::vector<std::int64_t> k = {6};  ///< of each rank's part of each product
  bool is_even = false;               ///< else the last rank's k is one less
  bool b_by_columns = false;
  coll::ReduceOp op = coll::ReduceOp::kSum;
  bool bias = false;
  bool keeps_product = false;
  bool spread = false;
  bool shuffled = false;        ///< a's rows are no matrix in memory, where a has three dims or more
  bool exact_partials = false;  ///< partials travel as f32

  bool to_all = false;  ///< an all-reduce

  [[nodiscard]] harness::Problem problem(int world, std::size_t j) const;
  [[nodiscard]] std::string text(int world, Algorithm algorithm) const;
};

/// Product `j` as a problem of its own.
inline harness::Problem PlainCase::problem(int world, std::size_t j) const {
  harness::Problem one;
  one.op = to_all ? harness::Op::kMatmulAllReduce : harness::Op::kMatmulReduceScatter;
  one.a = with_last(sizes, std::max<std::int64_t>(0, k[j] * world - (world > 1 && !is_even ? 1 : 0)));
  one.n = {sizes.back()};
  one.dtype = dtype;
  one.dim = dim;
  one.ranks = world;
  one.reduce = op;
  one.bias = bias;
  one.b_is_column_major = b_by_columns;
  one.seed = j + 1;
  return one;
}

/// The first product as the tool takes it, and what only the test does with it.
inline std::string PlainCase::text(int world, Algorithm algorithm) const {
  harness::Problem first = problem(world, 0);
  first.algorithm = algorithm;
  std::string all = "--problem " + to_line(first);
  for (std::size_t j = 1; j < k.size(); ++j) all += fmt::format(" (and k={} of seed {})", k[j], j + 1);
  return all + (keeps_product ? " (product kept)" : "") + (spread ? " (spread out)" : "") +
         (shuffled ? " (a in another order)" : "") + (exact_partials ? " (f32 partials)" : "");
}

/// One rank's tensors of a case, and all ranks' in f64.
template <class Args>
struct PlainOperands {
  PlainOperands(RankContextOfTest& rank, const PlainCase& c) {
    for (std::size_t j = 0; j < c.k.size(); ++j) {
      const harness::Problem problem = c.problem(rank.group.size(), j);
      const harness::GeneratedTensors source(problem);
      references.emplace_back(problem, source);
      const harness::OperandMemory memory{rank.device, harness::HostImage::kAlways, c.spread ? 2 : 1};
      tensors.emplace_back(problem, source, rank.group.rank(), memory);
      a.push_back(c.shuffled ? shuffle(rank.device, tensors.back().a()) : tensors.back().a().view());
      b.push_back(tensors.back().b()[0]);
    }
    if constexpr (std::is_same_v<Args, MatmulAllReduceArgs>) {
      args = tensors.front().all_reduce_args();
    } else {
      args = tensors.front().scatter_args();
    }
    args.a = a;
    args.b = b;
    if (c.exact_partials) args.partials = DType::kF32;
  }

  [[nodiscard]] harness::Expected product_at(int rank, std::int64_t row, std::int64_t column,
                                             bool in_steps) const {
    std::vector<harness::Expected> products;
    products.reserve(args.b.size());
    for (const harness::Reference& reference : references)
      products.push_back(reference.partial_sum(rank, 0, row, column));
    return in_steps ? harness::sum_in_steps(products, args.out.dtype) : harness::sum_in_f32(products);
  }
  [[nodiscard]] double added_at(std::int64_t column) const { return references.front().bias_at(0, column); }

  /// The same elements, the first dim innermost but for the last.
  TensorView shuffle(Device& device, const harness::GuardedTensor& from) {
    const TensorView& values = from.host();
    Layout layout = dense(values.sizes);
    std::int64_t stride = values.sizes.back();
    for (int d = 0; d < values.dim() - 1; stride *= std::max<std::int64_t>(values.size(d), 1), ++d)
      layout.strides[d] = stride;
    return shuffled.emplace_back(device, layout, values).view();
  }

  std::deque<harness::RankOperands> tensors;   ///< of each product
  std::vector<harness::Reference> references;  ///< the same
  std::deque<Guarded> shuffled;
  std::vector<TensorView> a, b;
  Args args;
};

}  // namespace tandem::test
