#include "fused/partial_product.hpp"

#include <tandem/gemm/mm.hpp>

#include "base/try.hpp"

namespace tandem::fused {
namespace {

bool needs_copy(const MatmulScatterOp& op, std::size_t j) {
  return !front_of(op.args.a[j], op.problem.dim).can_flatten_rows();
}

/// Where a_j is copied to, contiguous and of the shape of front_of().
TensorView copy_of(const MatmulScatterOp& op, std::size_t j) {
  std::int64_t offset = 0;
  for (std::size_t i = 0; i < j; ++i) {
    if (needs_copy(op, i)) offset += op.args.a[i].numel();
  }
  const TensorView part = op.copies.narrow(0, offset, op.args.a[j].numel());
  const TensorView front = front_of(op.args.a[j], op.problem.dim);
  return TensorView::contiguous(part.data, front.sizes, front.dtype, front.device);
}

/// a_j as [rows, k_j], rows in the order in which they are scattered.
TensorView left_of(const MatmulScatterOp& op, std::size_t j) {
  return (needs_copy(op, j) ? copy_of(op, j) : front_of(op.args.a[j], op.problem.dim)).flatten_rows();
}

/// Adds up the products of one part into `sum` [rows of the part, columns of the part].
Result<void> add_up(const MatmulScatterOp& op, Shard part, const TensorView& sum, Stream& stream,
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

}  // namespace

Result<void> copy_operands(const MatmulScatterOp& op) {
  for (std::size_t j = 0; j < op.args.a.size(); ++j) {
    if (!needs_copy(op, j)) continue;
    TANDEM_TRY(op.stream.copy(front_of(op.args.a[j], op.problem.dim), copy_of(op, j)));
  }
  return {};
}

Result<void> multiply_partial(const MatmulScatterOp& op, const Partial& partial, Stream& stream) {
  if (!op.problem.sums_in_scratch()) return add_up(op, partial.part, partial.to, stream, gemm::mm);
  TANDEM_TRY(add_up(op, partial.part, partial.sum, stream, gemm::mm));
  return round_to(partial.sum, partial.to, stream);
}

Result<void> prepare_partial(const MatmulScatterOp& op, const Partial& partial, Stream& stream) {
  const TensorView& target = op.problem.sums_in_scratch() ? partial.sum : partial.to;
  return add_up(op, partial.part, target, stream, gemm::prepare);
}

}  // namespace tandem::fused
