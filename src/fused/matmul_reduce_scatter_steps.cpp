#include "fused/matmul_reduce_scatter_steps.hpp"

#include <tandem/coll/collectives.hpp>
#include <tandem/device/device.hpp>

#include "base/try.hpp"
#include "coll/steps.hpp"
#include "fused/partial_product.hpp"
#include "pipeline/schedules.hpp"

namespace tandem::fused {
namespace {

/// Units of the largest part that multiply_part() makes at once.
std::int64_t largest_part(const ScatterProblem& problem, Algorithm algorithm) {
  const bool whole = algorithm == Algorithm::kSerial && !problem.scatters_last();
  return whole ? problem.total() : shard_stride(problem.total(), problem.world);
}

void carve(ScatterOp& op, Algorithm algorithm, Carver& carver) {
  const ScatterProblem& problem = op.problem;
  const DeviceId device = problem.device;
  const std::int64_t unit = problem.unit_elements();
  const std::int64_t mine = problem.part_of(op.group.rank()).size;
  const bool serial = algorithm == Algorithm::kSerial;

  std::int64_t copied = 0;
  for (const TensorView& a : op.args.a) {
    if (!front_of(a, problem.dim).can_flatten_rows()) copied += a.numel();
  }
  op.copies = carver.take({copied}, problem.dtype, device);
  if (serial) {
    op.partials = carver.take({problem.total(), unit}, problem.partials, device);
  } else {
    op.stack = carver.take({problem.world, mine, unit}, problem.partials, device);
  }
  if (problem.sums_in_scratch()) {
    const std::int64_t elements = largest_part(problem, algorithm) * unit;
    op.sums[0] = carver.take({elements}, DType::kF32, device);
    op.sums[1] = serial ? op.sums[0] : carver.take({elements}, DType::kF32, device);
  }
  if (serial && problem.has_bias && problem.scatters_last()) {
    op.reduced = carver.take({mine * unit}, DType::kF32, device);
  }
}

/// bias for this rank's columns.
std::optional<TensorView> own_bias(const ScatterOp& op) {
  if (!op.args.bias || !op.problem.scatters_last()) return op.args.bias;
  const Shard mine = op.problem.part_of(op.group.rank());
  return op.args.bias->narrow(0, mine.offset, mine.size);
}

/// out with the scattered dim in front, as partials lie in memory: [s_r, rest..., n]; by columns [rows, s_r].
TensorView front_of_out(const ScatterOp& op) {
  return op.problem.scatters_last() ? op.args.out.flatten_rows() : op.args.out.movedim(op.problem.dim, 0);
}

Result<void> reduce_whole_units(const ScatterOp& op, symm::Handle* workspace) {
  const TensorView out = front_of_out(op);
  Dims all = out.sizes;
  all[0] = op.problem.total();
  return coll::enqueue_reduce_scatter(
      {.input = TensorView::contiguous(op.partials.data, all, op.partials.dtype, op.partials.device),
       .output = out,
       .op = op.problem.reduce_op,
       .bias = op.args.bias},
      workspace, op.group, op.stream);
}

/// Scattered columns: blocks [rows, n_d] one after the other, which the collective takes for [n_d, rows]; it
/// only adds element by element. A bias goes along the columns that it cannot see, so it is added behind the
/// collective.
Result<void> reduce_columns(const ScatterOp& op, symm::Handle* workspace) {
  const TensorView out = front_of_out(op);
  const Dims mine = {out.size(1), out.size(0)};
  TensorView sum = TensorView::contiguous(out.data, mine, out.dtype, out.device);
  if (op.args.bias) sum = TensorView::contiguous(op.reduced.data, mine, DType::kF32, out.device);
  TANDEM_TRY(coll::enqueue_reduce_scatter(
      {.input = op.partials, .output = sum, .op = op.problem.reduce_op, .bias = {}}, workspace, op.group,
      op.stream));
  if (!op.args.bias || out.numel() == 0) return {};
  const TensorView stack =
      TensorView::contiguous(sum.data, {1, out.size(0), out.size(1)}, DType::kF32, out.device);
  return coll::reduce_stack({.stack = stack, .out = out, .op = coll::ReduceOp::kSum, .bias = own_bias(op)},
                            op.stream);
}

}  // namespace

Result<ScatterOp> prepare(const MatmulReduceScatterArgs& args, const ScatterProblem& problem,
                          Algorithm algorithm, Group& group, Stream& stream) {
  DeviceMemory& memory = device_memory(group, problem.device);
  ScatterOp op{.args = args,
               .problem = problem,
               .group = group,
               .stream = stream,
               .copies = {},
               .partials = {},
               .stack = {},
               .sums = {},
               .reduced = {}};
  Carver count;
  carve(op, algorithm, count);
  TANDEM_TRY(memory.scratch.reserve(count.used_bytes(), stream.device()));
  Carver carver(memory.scratch.data());
  carve(op, algorithm, carver);
  return op;
}

std::int64_t workspace_bytes(const ScatterOp& op, Algorithm algorithm) {
  if (algorithm == Algorithm::kSerial)
    return coll::reduce_scatter_workspace_bytes(op.partials, op.problem.world, op.stream);
  return pipeline::scatter_workspace_bytes(op.stack, op.problem.total());
}

Result<void> prepare_products(const ScatterOp& op, Algorithm algorithm) {
  const ScatterProblem& problem = op.problem;
  const bool serial = algorithm == Algorithm::kSerial;
  if (serial && !problem.scatters_last())
    return prepare_part(op, {0, problem.total()}, op.partials, op.sums[0], op.stream);
  for (int rank = 0; rank < problem.world; ++rank) {
    const Shard part = problem.part_of(rank);
    // A partial for another rank goes to the workspace, which has not been asked for yet; it is as aligned as
    // null.
    const TensorView to = TensorView::contiguous(nullptr, {part.size, problem.unit_elements()},
                                                 problem.partials, problem.device);
    TANDEM_TRY(prepare_part(op, part, to, op.sums[0], op.stream));
    if (!serial) TANDEM_TRY(prepare_part(op, part, to, op.sums[1], stream_pair(op.group, op.stream).side));
  }
  return {};
}

Result<void> enqueue_serial(const ScatterOp& op, symm::Handle* workspace) {
  const ScatterProblem& problem = op.problem;
  TANDEM_TRY(copy_operands(op));
  if (!problem.scatters_last()) {
    TANDEM_TRY(multiply_part(op, {0, problem.total()}, op.partials, op.sums[0], op.stream));
    return reduce_whole_units(op, workspace);
  }
  for (int rank = 0; rank < problem.world; ++rank) {
    const Shard part = problem.part_of(rank);
    TANDEM_TRY(multiply_part(op, part, op.partials.narrow(0, part.offset, part.size), op.sums[0], op.stream));
  }
  return reduce_columns(op, workspace);
}

Result<void> enqueue_pipelined(const ScatterOp& op, symm::Handle* workspace) {
  const ScatterProblem& problem = op.problem;
  TANDEM_TRY(copy_operands(op));
  const auto produce = [&](int destination, const TensorView& to, Stream& stream) -> Result<void> {
    const TensorView& sum = op.sums[&stream == &op.stream ? 0 : 1];
    return multiply_part(op, problem.part_of(destination), to, sum, stream);
  };
  TANDEM_TRY(pipeline::produce_and_all_to_all(
      {.stack = op.stack, .total = problem.total(), .producer = produce, .trace = op.args.trace}, *workspace,
      stream_pair(op.group, op.stream)));

  const TensorView out = front_of_out(op);
  if (out.numel() == 0) return {};
  Dims stacked = out.sizes;
  stacked.insert(0, problem.world);
  return coll::reduce_stack(
      {.stack = TensorView::contiguous(op.stack.data, stacked, op.stack.dtype, op.stack.device),
       .out = out,
       .op = problem.reduce_op,
       .bias = own_bias(op)},
      op.stream);
}

}  // namespace tandem::fused
