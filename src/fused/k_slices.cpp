#include "fused/k_slices.hpp"

#include <tandem/coll/collectives.hpp>
#include <tandem/gemm/mm.hpp>

#include "base/try.hpp"

namespace tandem::fused {
namespace {

/// [rows, k_q] contiguous.
TensorView slice_of(const GatherOp& op, Shard part, int source) {
  const TensorView units = units_of(op.shard, op.gathered, {part, source}, op.group);
  return TensorView::contiguous(units.data, {op.problem.rows(), part.size}, units.dtype, units.device);
}

/// f32 [rows, n_i].
TensorView sum_of(const GatherOp& op, int i) {
  std::int64_t column = 0;
  for (int j = 0; j < i; ++j) column += op.args.b[static_cast<std::size_t>(j)].size(1);
  const std::int64_t n = op.args.b[static_cast<std::size_t>(i)].size(1);
  const TensorView part = op.sums.narrow(0, op.problem.rows() * column, op.problem.rows() * n);
  return TensorView::contiguous(part.data, {op.problem.rows(), n}, DType::kF32, part.device);
}

}  // namespace

Result<void> add_slice(const GatherOp& op, int source, Stream& stream, ProductStep step) {
  const Shard part = op.problem.part_of(source);
  if (op.problem.rows() == 0 || (part.size == 0 && source > 0)) return {};
  for (int i = 0; i < op.problem.num_b; ++i) {
    const TensorView& b = op.args.b[static_cast<std::size_t>(i)];
    if (b.size(1) == 0) continue;
    TANDEM_TRY(step({.a = slice_of(op, part, source),
                     .b = b.narrow(0, part.offset, part.size),
                     .out = sum_of(op, i),
                     .bias = {},
                     .accumulate = source > 0},
                    stream));
  }
  return {};
}

Result<void> finish_slices(const GatherOp& op, Stream& stream) {
  for (int i = 0; i < op.problem.num_b; ++i) {
    const auto idx = static_cast<std::size_t>(i);
    TensorView stack = sum_of(op, i);
    if (stack.numel() == 0) continue;
    stack.sizes.insert(0, 1);
    stack.strides.insert(0, stack.numel());
    coll::ReduceStackArgs cast{
        .stack = stack, .out = op.args.out[idx].flatten_rows(), .op = coll::ReduceOp::kSum, .bias = {}};
    if (!op.args.bias.empty()) cast.bias = op.args.bias[idx];
    TANDEM_TRY(coll::reduce_stack(cast, stream));
  }
  return {};
}

}  // namespace tandem::fused
