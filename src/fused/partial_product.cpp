#include "fused/partial_product.hpp"

#include <tandem/coll/collectives.hpp>
#include <tandem/gemm/mm.hpp>

#include "base/try.hpp"

namespace tandem::fused {
namespace {

bool needs_copy(const ScatterOp& op, std::size_t j) {
  return !front_of(op.args.a[j], op.problem.dim).can_flatten_rows();
}

/// Where a_j is copied to, contiguous and of the shape of front_of().
TensorView copy_of(const ScatterOp& op, std::size_t j) {
  std::int64_t offset = 0;
  for (std::size_t i = 0; i < j; ++i) {
    if (needs_copy(op, i)) offset += op.args.a[i].numel();
  }
  const TensorView part = op.copies.narrow(0, offset, op.args.a[j].numel());
  const TensorView front = front_of(op.args.a[j], op.problem.dim);
  return TensorView::contiguous(part.data, front.sizes, front.dtype, front.device);
}

/// a_j as [rows, k_j], rows in the order in which they are scattered.
TensorView left_of(const ScatterOp& op, std::size_t j) {
  return (needs_copy(op, j) ? copy_of(op, j) : front_of(op.args.a[j], op.problem.dim)).flatten_rows();
}

/// Adds up the products of one part into `sum` [rows of the part, columns of the part].
Result<void> add_up(const ScatterOp& op, Shard part, const TensorView& sum, Stream& stream,
                    ProductStep step) {
  const bool by_columns = op.problem.scatters_last();
  const std::int64_t rows = op.problem.unit_rows();
  for (std::size_t j = 0; j < op.args.a.size(); ++j) {
    const TensorView left = left_of(op, j);
    const TensorView& right = op.args.b[j];
    TANDEM_TRY(step({.a = by_columns ? left : left.narrow(0, part.offset * rows, part.size * rows),
                     .b = by_columns ? right.narrow(1, part.offset, part.size) : right,
                     .out = sum,
                     .bias = {},
                     .accumulate = j > 0},
                    stream));
  }
  return {};
}

/// The start of `memory` as the product of `part`.
TensorView as_matrix(const ScatterProblem& problem, Shard part, const TensorView& memory) {
  const Dims sizes = problem.scatters_last() ? Dims{problem.rows(), part.size}
                                             : Dims{part.size * problem.unit_rows(), problem.n()};
  return TensorView::contiguous(memory.data, sizes, memory.dtype, memory.device);
}

/// args.product's elements of `part`, in the order in which `to` holds them: [part.size, rest..., n] or, by
/// columns, [rows, part.size].
TensorView product_part(const ScatterOp& op, Shard part) {
  const TensorView& product = *op.args.product;
  if (op.problem.scatters_last()) return product.flatten_rows().narrow(1, part.offset, part.size);
  return product.movedim(op.problem.dim, 0).narrow(0, part.offset, part.size);
}

}  // namespace

Result<void> copy_operands(const ScatterOp& op) {
  for (std::size_t j = 0; j < op.args.a.size(); ++j) {
    if (!needs_copy(op, j)) continue;
    TANDEM_TRY(op.stream.copy(front_of(op.args.a[j], op.problem.dim), copy_of(op, j)));
  }
  return {};
}

Result<void> multiply_part(const ScatterOp& op, Shard part, const TensorView& to, const TensorView& sum,
                           Stream& stream) {
  if (to.numel() == 0) return {};
  const TensorView rounded = as_matrix(op.problem, part, to);
  if (op.problem.sums_in_scratch()) {
    const TensorView exact = as_matrix(op.problem, part, sum);
    TANDEM_TRY(add_up(op, part, exact, stream, gemm::mm));
    TANDEM_TRY(round_to(exact, rounded, stream));
  } else {
    TANDEM_TRY(add_up(op, part, rounded, stream, gemm::mm));
  }
  if (!op.args.product) return {};
  const TensorView kept = product_part(op, part);
  return round_to(TensorView::contiguous(to.data, kept.sizes, to.dtype, to.device), kept, stream);
}

Result<void> prepare_part(const ScatterOp& op, Shard part, const TensorView& to, const TensorView& sum,
                          Stream& stream) {
  if (to.numel() == 0) return {};
  const TensorView& target = op.problem.sums_in_scratch() ? sum : to;
  return add_up(op, part, as_matrix(op.problem, part, target), stream, gemm::prepare);
}

Result<void> round_to(const TensorView& from, const TensorView& to, Stream& stream) {
  if (from.dtype == to.dtype) return stream.copy(from, to);
  TensorView stack = from;
  stack.sizes.insert(0, 1);
  stack.strides.insert(0, from.numel());
  return coll::reduce_stack({.stack = stack, .out = to, .op = coll::ReduceOp::kSum, .bias = {}}, stream);
}

}  // namespace tandem::fused
