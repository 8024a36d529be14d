#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <tandem/base/error.hpp>
#include <tandem/base/tensor.hpp>
#include <tandem/bootstrap/group.hpp>
#include <tandem/coll/collectives.hpp>
#include <tandem/device/device.hpp>
#include <tandem/fused/report.hpp>

#include "base/function_ref.hpp"
#include "fused/call/checks.hpp"
#include "fused/scatter/problem.hpp"

namespace tandem::fused {

// Checks that the scatter and all-reduce ops make.

/// What is multiplied and scattered.
struct Products {
  std::span<const TensorView> a;
  std::span<const TensorView> b;
  int scatter_dim;
};
template <class Args>
[[nodiscard]] Products products_of(const Args& args) {
  return {args.a, args.b, args.scatter_dim};
}

/// Sizes of the product before the scatter: a's with b's columns.
[[nodiscard]] Result<Dims> product_sizes(std::string_view who, const Products& products);

/// The shard of rank `rank`, contiguous.
[[nodiscard]] Layout shard_layout(Dims sizes, int dim, int world, int rank);
/// All of it, contiguous: out of an all-reduce.
[[nodiscard]] Layout whole_layout(const Dims& sizes);
[[nodiscard]] Result<Layout> output_layout(std::string_view who, const Products& products, int world,
                                           int rank);

/// Whether this is a sum or a mean, and partials may travel in that type; `dtype` is out's.
[[nodiscard]] Result<void> check_reduction(std::string_view who, coll::ReduceOp op,
                                           std::optional<DType> partials, DType dtype);

/// Whether out and product have memory of their own: `check_inputs` holds one of them against what is read.
using CheckInputs = FunctionRef<Result<void>(const Named& output)>;
[[nodiscard]] Result<void> check_outputs_apart(std::string_view who, const TensorView& out,
                                               const std::optional<TensorView>& product,
                                               CheckInputs check_inputs);

/// What checked arguments come down to; no a is copied, and no bias added to the sum over ranks. `gives_all`:
/// of an all-reduce, whose args are those of the scatter that it is.
template <class Args>
[[nodiscard]] ScatterProblem scatter_problem_of(const Args& args, const Dims& sizes, bool gives_all,
                                                const Group& group, const Device& device) {
  ScatterProblem problem{.dtype = args.out.dtype,
                         .partials = args.partials.value_or(args.out.dtype),
                         .sizes = sizes,
                         .dim = args.scatter_dim,
                         .reduce_op = args.reduce_op,
                         .world = group.size(),
                         .num_hosts = group.num_hosts(),
                         .asked = args.algorithm,
                         .plan_k = args.plan_k,
                         .batch_invariant = device.config().batch_invariant,
                         .device = device.id(),
                         .checks_nan = group.nan_check(),
                         .num_products = static_cast<int>(args.a.size()),
                         .keeps_product = args.product.has_value()};
  for (const TensorView& a : args.a) problem.sum_k += a.sizes.back();
  problem.gives_all = gives_all;
  if (gives_all) problem.sizes = {problem.rows(), problem.n()};
  return problem;
}

/// Notes which a's are copied once: those whose rows cannot be read as a matrix.
void add_copies(std::span<const TensorView> a, int scatter_dim, ScatterProblem& problem);

}  // namespace tandem::fused
