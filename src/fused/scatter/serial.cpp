#include "base/format.hpp"
#include "coll/steps.hpp"
#include "fused/scatter/algorithms.hpp"

namespace tandem::fused {

using program::all_of;
using program::kCurrent;
using program::Operand;
using program::RootId;
using program::Space;

namespace {

void reduce_rows(ScatterBuilder& scatter) {
  const ScatterProblem& problem = scatter.problem();
  const RootId partials = scatter.steps().at(Space::kWorkspace, 0, "partials",
                                             problem.sizes_of(problem.total()), problem.partials);
  scatter.make_partial(kCurrent, {0, problem.total()}, all_of(partials));
  const program::Operand out = all_of(scatter.roots().out);
  const program::Operand bias = all_of(scatter.roots().bias);
  if (problem.gives_all) {
    scatter.steps().all_reduce(kCurrent, all_of(partials), out, problem.reduce_op, bias);
  } else {
    scatter.steps().reduce_scatter(kCurrent, all_of(partials), out, problem.reduce_op, bias);
  }
}

/// Scattered columns: blocks [rows, n_d] one after the other, which the collective takes for [n_d, rows]; it
/// only adds element by element. A bias goes along the columns that it cannot see, so it is added behind the
/// collective.
void reduce_columns(ScatterBuilder& scatter) {
  const ScatterProblem& problem = scatter.problem();
  program::Builder& steps = scatter.steps();
  for (int rank = 0; rank < problem.world; ++rank) {
    const Shard part = problem.part_of(rank);
    const RootId partial =
        steps.at(Space::kWorkspace, part.offset * scatter.unit_bytes(), fmt::format("partial for {}", rank),
                 problem.sizes_of(part.size), problem.partials);
    scatter.make_partial(kCurrent, part, all_of(partial));
  }
  const RootId partials =
      steps.at(Space::kWorkspace, 0, "partials", {problem.total(), problem.rows()}, problem.partials);
  if (!problem.has_bias) {
    scatter.roots().out_units = steps.caller("out as columns");
    steps.reduce_scatter(kCurrent, all_of(partials), all_of(scatter.roots().out_units), problem.reduce_op);
    return;
  }
  const std::int64_t mine = scatter.own().size;
  const RootId sum = steps.scratch("sum as columns", {mine, problem.rows()}, DType::kF32);
  const RootId sum_rows =
      steps.at(Space::kScratch, steps.root(sum).offset_bytes, "sum", {problem.rows(), mine}, DType::kF32);
  steps.reduce_scatter(kCurrent, all_of(partials), all_of(sum), problem.reduce_op);
  steps.cast(kCurrent, all_of(sum_rows), all_of(scatter.roots().out), scatter.own_bias());
}

}  // namespace

/// The products, made where a collective reads them, and the collective.
ScatterProgram build_serial_scatter(const ScatterProblem& problem, int rank, const Device& device) {
  if (problem.num_hosts > 1) return build_scatter_across_hosts(problem, Algorithm::kSerial, rank);
  ScatterBuilder scatter(problem, Algorithm::kSerial, rank, 1);
  const std::int64_t units = shard_stride(problem.total(), problem.world);
  scatter.add_sums(kCurrent, problem.scatters_last() ? units : problem.total());
  const TensorView partials =
      TensorView::contiguous(nullptr, {problem.total(), problem.unit_elements()}, problem.partials);
  scatter.steps().memory().workspace_bytes =
      problem.gives_all ? coll::all_reduce_workspace_bytes(partials, problem.dtype, problem.world, device)
                        : coll::reduce_scatter_workspace_bytes(partials, problem.world, device);
  scatter.copy_operands();
  if (problem.scatters_last()) {
    reduce_columns(scatter);
  } else {
    reduce_rows(scatter);
  }
  return {scatter.take(), scatter.roots()};
}

}  // namespace tandem::fused
