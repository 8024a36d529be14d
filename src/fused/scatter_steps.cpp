#include "fused/scatter_steps.hpp"

#include <tandem/coll/collectives.hpp>

#include "base/try.hpp"
#include "coll/steps.hpp"
#include "pipeline/schedules.hpp"

namespace tandem::fused {
namespace {

/// Units of the largest part whose product is made at once.
std::int64_t largest_part(const ScatterProblem& problem, Algorithm algorithm) {
  const bool whole = algorithm == Algorithm::kSerial && !problem.scatters_last();
  return whole ? problem.total() : shard_stride(problem.total(), problem.world);
}

/// bias for this rank's columns.
std::optional<TensorView> own_bias(const ScatterSteps& steps) {
  if (!steps.bias || !steps.problem.scatters_last()) return steps.bias;
  const Shard mine = steps.problem.part_of(steps.group.rank());
  return steps.bias->narrow(0, mine.offset, mine.size);
}

/// out with the scattered dim in front, as partials lie in memory: [s_r, rest..., n]; by columns [rows, s_r].
TensorView front_of_out(const ScatterSteps& steps) {
  return steps.problem.scatters_last() ? steps.out.flatten_rows() : steps.out.movedim(steps.problem.dim, 0);
}

/// The product's elements of `part`, in the order in which a partial holds them: [part.size, rest..., n] or,
/// by columns, [rows, part.size].
TensorView product_part(const ScatterSteps& steps, Shard part) {
  const TensorView& product = *steps.product;
  if (steps.problem.scatters_last()) return product.flatten_rows().narrow(1, part.offset, part.size);
  return product.movedim(steps.problem.dim, 0).narrow(0, part.offset, part.size);
}

/// Makes one part's partial in `to`, contiguous [part.size, unit], and keeps it if that is wanted. `sum`: the
/// stream's own scratch.
Result<void> make_partial(const ScatterSteps& steps, Shard part, const TensorView& to, const TensorView& sum,
                          Stream& stream) {
  if (to.numel() == 0) return {};
  TANDEM_TRY(steps.multiply(partial_of(steps.problem, part, to, sum), stream));
  if (!steps.product) return {};
  const TensorView kept = product_part(steps, part);
  return round_to(TensorView::contiguous(to.data, kept.sizes, to.dtype, to.device), kept, stream);
}

Result<void> reduce_whole_units(const ScatterSteps& steps, const TensorView& partials,
                                symm::Handle* workspace) {
  const TensorView out = front_of_out(steps);
  Dims all = out.sizes;
  all[0] = steps.problem.total();
  return coll::enqueue_reduce_scatter(
      {.input = TensorView::contiguous(partials.data, all, partials.dtype, partials.device),
       .output = out,
       .op = steps.problem.reduce_op,
       .bias = steps.bias},
      workspace, steps.group, steps.stream);
}

/// Scattered columns: blocks [rows, n_d] one after the other, which the collective takes for [n_d, rows]; it
/// only adds element by element. A bias goes along the columns that it cannot see, so it is added behind the
/// collective.
Result<void> reduce_columns(const ScatterSteps& steps, const TensorView& partials, symm::Handle* workspace) {
  const TensorView out = front_of_out(steps);
  const Dims mine = {out.size(1), out.size(0)};
  TensorView sum = TensorView::contiguous(out.data, mine, out.dtype, out.device);
  if (steps.bias) sum = TensorView::contiguous(steps.memory.reduced.data, mine, DType::kF32, out.device);
  TANDEM_TRY(coll::enqueue_reduce_scatter(
      {.input = partials, .output = sum, .op = steps.problem.reduce_op, .bias = {}}, workspace, steps.group,
      steps.stream));
  if (!steps.bias || out.numel() == 0) return {};
  const TensorView stack =
      TensorView::contiguous(sum.data, {1, out.size(0), out.size(1)}, DType::kF32, out.device);
  return coll::reduce_stack({.stack = stack, .out = out, .op = coll::ReduceOp::kSum, .bias = own_bias(steps)},
                            steps.stream);
}

Result<void> enqueue_serial(const ScatterSteps& steps, symm::Handle* workspace) {
  const ScatterProblem& problem = steps.problem;
  TensorView partials = steps.memory.partials;
  if (partials.numel() > 0) {
    TANDEM_ASSIGN(partials, coll::scatter_input(*workspace, partials.sizes, partials.dtype));
  }
  const TensorView& sum = steps.memory.sums[0];
  if (!problem.scatters_last()) {
    TANDEM_TRY(make_partial(steps, {0, problem.total()}, partials, sum, steps.stream));
    return reduce_whole_units(steps, partials, workspace);
  }
  for (int rank = 0; rank < problem.world; ++rank) {
    const Shard part = problem.part_of(rank);
    TANDEM_TRY(make_partial(steps, part, partials.narrow(0, part.offset, part.size), sum, steps.stream));
  }
  return reduce_columns(steps, partials, workspace);
}

Result<void> enqueue_pipelined(const ScatterSteps& steps, symm::Handle* workspace) {
  const ScatterProblem& problem = steps.problem;
  const TensorView& stack = steps.memory.stack;
  const auto produce = [&](int destination, const TensorView& to, Stream& stream) -> Result<void> {
    const TensorView& sum = steps.memory.sums[&stream == &steps.stream ? 0 : 1];
    return make_partial(steps, problem.part_of(destination), to, sum, stream);
  };
  TANDEM_TRY(pipeline::produce_and_all_to_all(
      {.stack = stack, .total = problem.total(), .producer = produce, .trace = steps.trace}, *workspace,
      stream_pair(steps.group, steps.stream)));

  const TensorView out = front_of_out(steps);
  if (out.numel() == 0) return {};
  Dims stacked = out.sizes;
  stacked.insert(0, problem.world);
  return coll::reduce_stack({.stack = TensorView::contiguous(stack.data, stacked, stack.dtype, stack.device),
                             .out = out,
                             .op = problem.reduce_op,
                             .bias = own_bias(steps)},
                            steps.stream);
}

}  // namespace

ScatterMemory carve_scatter(const ScatterProblem& problem, Algorithm algorithm, int rank, Carver& carver) {
  const DeviceId device = problem.device;
  const std::int64_t unit = problem.unit_elements();
  const std::int64_t mine = problem.part_of(rank).size;
  const bool serial = algorithm == Algorithm::kSerial;

  ScatterMemory memory;
  if (serial) {
    memory.partials = TensorView::contiguous(nullptr, {problem.total(), unit}, problem.partials, device);
  } else {
    memory.stack = carver.take({problem.world, mine, unit}, problem.partials, device);
  }
  if (problem.sums_in_scratch()) {
    const std::int64_t elements = largest_part(problem, algorithm) * unit;
    memory.sums[0] = carver.take({elements}, DType::kF32, device);
    memory.sums[1] = serial ? memory.sums[0] : carver.take({elements}, DType::kF32, device);
  }
  if (serial && problem.has_bias && problem.scatters_last()) {
    memory.reduced = carver.take({mine * unit}, DType::kF32, device);
  }
  return memory;
}

Partial partial_of(const ScatterProblem& problem, Shard part, const TensorView& to, const TensorView& sum) {
  const Dims sizes = problem.scatters_last() ? Dims{problem.rows(), part.size}
                                             : Dims{part.size * problem.unit_rows(), problem.n()};
  return {.part = part,
          .to = TensorView::contiguous(to.data, sizes, to.dtype, to.device),
          .sum = TensorView::contiguous(sum.data, sizes, DType::kF32, sum.device)};
}

std::int64_t scatter_workspace_bytes(const ScatterProblem& problem, const ScatterMemory& memory,
                                     Algorithm algorithm, const Stream& stream) {
  if (algorithm == Algorithm::kSerial)
    return coll::reduce_scatter_workspace_bytes(memory.partials, problem.world, stream);
  return pipeline::scatter_workspace_bytes(memory.stack, problem.total());
}

Result<void> enqueue_scatter(const ScatterSteps& steps, Algorithm algorithm, symm::Handle* workspace) {
  return algorithm == Algorithm::kSerial ? enqueue_serial(steps, workspace)
                                         : enqueue_pipelined(steps, workspace);
}

Result<void> round_to(const TensorView& from, const TensorView& to, Stream& stream) {
  if (from.dtype == to.dtype) return stream.copy(from, to);
  TensorView stack = from;
  stack.sizes.insert(0, 1);
  stack.strides.insert(0, from.numel());
  return coll::reduce_stack({.stack = stack, .out = to, .op = coll::ReduceOp::kSum, .bias = {}}, stream);
}

}  // namespace tandem::fused
