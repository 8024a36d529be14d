#include "fused/matmul_reduce_scatter_steps.hpp"

#include <tandem/device/device.hpp>

#include "base/alignment.hpp"
#include "base/try.hpp"
#include "fused/partial_product.hpp"

namespace tandem::fused {
namespace {

void carve(MatmulScatterOp& op, Algorithm algorithm, Carver& carver) {
  const ScatterProblem& problem = op.problem;
  std::int64_t copied = 0;
  for (const TensorView& a : op.args.a) {
    if (!front_of(a, problem.dim).can_flatten_rows()) copied += a.numel();
  }
  op.copies = carver.take({copied}, problem.dtype, problem.device);
  op.memory = carve_scatter(problem, algorithm, op.group.rank(), carver);
}

/// A place like the one of the partial for `rank`: the workspace has not been asked for yet. In it the
/// partials of `serial` lie one after the other; of those of `pipelined` each has a slot, but the own one.
TensorView like_partial_for(const MatmulScatterOp& op, Algorithm algorithm, int rank) {
  if (algorithm == Algorithm::kPipelined && rank == op.group.rank()) return op.memory.stack.select(0, rank);
  const ScatterProblem& problem = op.problem;
  const Shard part = problem.part_of(rank);
  std::uintptr_t place = kMostAlignment;
  if (algorithm == Algorithm::kSerial)
    place +=
        static_cast<std::uintptr_t>(part.offset * problem.unit_elements() * size_bytes(problem.partials));
  return TensorView::contiguous(reinterpret_cast<void*>(place), {part.size, problem.unit_elements()},
                                problem.partials, problem.device);
}

}  // namespace

Result<MatmulScatterOp> prepare(const MatmulReduceScatterArgs& args, const ScatterProblem& problem,
                                Algorithm algorithm, Group& group, Stream& stream) {
  Scratch& scratch = device_memory(group, problem.device).scratch;
  MatmulScatterOp op{
      .args = args, .problem = problem, .group = group, .stream = stream, .copies = {}, .memory = {}};
  Carver count;
  carve(op, algorithm, count);
  TANDEM_TRY(scratch.reserve(count.used_bytes(), group, stream.device()));
  Carver carver(scratch.data());
  carve(op, algorithm, carver);
  return op;
}

std::int64_t workspace_bytes(const MatmulScatterOp& op, Algorithm algorithm) {
  return scatter_workspace_bytes(op.problem, op.memory, algorithm, op.stream);
}

Result<void> prepare_products(const MatmulScatterOp& op, Algorithm algorithm) {
  const ScatterProblem& problem = op.problem;
  const TensorView* const sums = op.memory.sums;
  const bool serial = algorithm == Algorithm::kSerial;
  const auto prepare_part = [&](Shard part, const TensorView& to, const TensorView& sum, Stream& stream) {
    return to.numel() == 0 ? Result<void>() : prepare_partial(op, partial_of(problem, part, to, sum), stream);
  };
  if (serial && !problem.scatters_last())
    return prepare_part({0, problem.total()}, op.memory.partials, sums[0], op.stream);
  for (int rank = 0; rank < problem.world; ++rank) {
    const Shard part = problem.part_of(rank);
    const TensorView to = like_partial_for(op, algorithm, rank);
    TANDEM_TRY(prepare_part(part, to, sums[0], op.stream));
    if (!serial) TANDEM_TRY(prepare_part(part, to, sums[1], stream_pair(op.group, op.stream).side));
  }
  return {};
}

Result<void> enqueue(const MatmulScatterOp& op, Algorithm algorithm, symm::Handle* workspace) {
  TANDEM_TRY(copy_operands(op));
  const auto multiply = [&](const Partial& partial, Stream& stream) {
    return multiply_partial(op, partial, stream);
  };
  return enqueue_scatter({.problem = op.problem,
                          .group = op.group,
                          .stream = op.stream,
                          .memory = op.memory,
                          .out = op.args.out,
                          .bias = op.args.bias,
                          .product = op.args.product,
                          .multiply = multiply,
                          .trace = op.args.trace},
                         algorithm, workspace);
}

}  // namespace tandem::fused
