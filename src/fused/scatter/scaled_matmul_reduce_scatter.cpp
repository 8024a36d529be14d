#include <tandem/fused/scaled_matmul_reduce_scatter.hpp>

#include <tandem/gemm/scaled_mm.hpp>

#include "base/try.hpp"
#include "base/with_last.hpp"
#include "fused/op_call.hpp"
#include "fused/call/group_memory.hpp"
#include "fused/call/scaled_checks.hpp"
#include "fused/scaled_matmul_reduce_scatter_check.hpp"
#include "fused/scatter_plan.hpp"
#include "fused/scatter_steps.hpp"

namespace tandem {
namespace fused {
namespace {

/// One checked call with the scratch memory it works in. Scaled products read N-D operands as they lie, so
/// none is copied.
struct ScaledScatterOp {
  const ScaledMatmulReduceScatterArgs& args;
  const ScatterProblem& problem;
  Group& group;
  Stream& stream;
  ScatterMemory memory = {};
};

/// The plan of this problem; decided, and put into words, when the group meets it first.
Result<SharedPlan> plan_of(const ScatterProblem& problem, Group& group, Device& device) {
  auto& plans = plans_of<ScatterProblem>(group, "fused.scaled_scatter");
  if (SharedPlan known = plans.find(problem)) return known;
  // Any sizes and types will do: whether there are scaled products on this device.
  TANDEM_TRY(check_runs({.m = problem.rows(), .n = problem.n(), .k = problem.sum_k, .out = problem.partials},
                        device));
  TANDEM_ASSIGN(OpPlan plan, decide("scaled_matmul_reduce_scatter", problem, group, device));
  return plans.insert(problem, std::move(plan));
}

Result<Ready<ScaledScatterOp>> get_ready(const ScaledMatmulReduceScatterArgs& args,
                                         const ScatterProblem& problem, Group& group, Stream& stream) {
  TANDEM_ASSIGN(const SharedPlan plan, plan_of(problem, group, stream.device()));
  ScaledScatterOp op{.args = args, .problem = problem, .group = group, .stream = stream};
  Scratch& scratch = device_memory(group, problem.device).scratch;
  Carver count;
  op.memory = carve_scatter(problem, plan->algorithm, group.rank(), count);
  TANDEM_TRY(scratch.reserve(count.used_bytes(), group, stream.device()));
  Carver carver(scratch.data());
  op.memory = carve_scatter(problem, plan->algorithm, group.rank(), carver);
  return Ready<ScaledScatterOp>{plan, op};
}

std::int64_t workspace_bytes(const ScaledScatterOp& op, Algorithm algorithm) {
  return scatter_workspace_bytes(op.problem, op.memory, algorithm, op.stream);
}

/// The part's rows of a tensor with a's dims; all of them if columns are scattered.
TensorView rows_of(const ScaledScatterOp& op, const TensorView& view, Shard part) {
  return op.problem.scatters_last() ? view
                                    : view.movedim(op.problem.dim, 0).narrow(0, part.offset, part.size);
}

/// The part's columns of a tensor that goes along them; all of them if rows are scattered.
TensorView columns_of(const ScaledScatterOp& op, const TensorView& view, Shard part) {
  return op.problem.scatters_last() ? view.narrow(view.dim() - 1, part.offset, part.size) : view;
}

/// (a_j * b_j * scales + bias_j) * result_scale_j for one part, but where it goes.
gemm::ScaledMmArgs product_of(const ScaledScatterOp& op, int j, Shard part) {
  const ScaledMatmulReduceScatterArgs& args = op.args;
  const auto idx = static_cast<std::size_t>(j);
  gemm::ScaledMmArgs product{.a = rows_of(op, args.a[idx], part),
                             .b = columns_of(op, args.b[idx], part),
                             .fast_accum = args.fast_accum};
  if (const TensorView* scale = at(args.a_scale, j))
    product.a_scale = scale->numel() == 1 ? *scale : rows_of(op, *scale, part);
  if (const TensorView* scale = at(args.b_scale, j))
    product.b_scale = scale->numel() == 1 ? *scale : columns_of(op, *scale, part);
  if (const TensorView* bias = at(args.bias, j)) product.bias = columns_of(op, *bias, part);
  if (const TensorView* scale = at(args.result_scale, j)) product.result_scale = *scale;
  return product;
}

/// `matrix` with the dims of a part of the product.
TensorView as_part(const Dims& a_sizes, std::int64_t columns, const TensorView& matrix) {
  return TensorView::contiguous(matrix.data, with_last(a_sizes, columns), matrix.dtype, matrix.device);
}

/// Products are added up in f32 in the order of the list; the last one is rounded together with the sum.
Result<void> multiply_partial(const ScaledScatterOp& op, const Partial& partial, Stream& stream) {
  const TensorView& sum = op.problem.sums_in_scratch() ? partial.sum : partial.to;
  for (int j = 0; j < op.problem.num_products; ++j) {
    gemm::ScaledMmArgs product = product_of(op, j, partial.part);
    const Dims& sizes = product.a.sizes;
    const std::int64_t columns = product.b.size(1);
    const bool is_last = j == op.problem.num_products - 1;
    product.out = as_part(sizes, columns, is_last ? partial.to : sum);
    if (j > 0) product.addend = as_part(sizes, columns, sum);
    TANDEM_TRY(gemm::scaled_matmul(product, stream));
  }
  return {};
}

Result<void> enqueue(const ScaledScatterOp& op, Algorithm algorithm, symm::Handle* workspace) {
  const auto multiply = [&](const Partial& partial, Stream& stream) {
    return multiply_partial(op, partial, stream);
  };
  return enqueue_scatter({.problem = op.problem,
                          .group = op.group,
                          .stream = op.stream,
                          .memory = op.memory,
                          .out = op.args.out,
                          .bias = {},
                          .product = op.args.product,
                          .multiply = multiply,
                          .trace = op.args.trace},
                         algorithm, workspace);
}

}  // namespace
}  // namespace fused

Result<OpReport> fused_scaled_matmul_reduce_scatter(const ScaledMatmulReduceScatterArgs& args, Group& group,
                                                    Stream& stream) {
  TANDEM_TRY(group.status());
  return fused::run_checked(group, stream, fused::check(args, group, stream),
                            [&](const fused::ScatterProblem& problem, Stream& on) {
                              return fused::get_ready(args, problem, group, on);
                            });
}

Result<OpReport> plan(const ScaledMatmulReduceScatterArgs& args, Group& group, Stream& stream) {
  TANDEM_TRY(group.status());
  TANDEM_ASSIGN(const auto problem, fused::check(args, group, stream));
  TANDEM_ASSIGN(const fused::SharedPlan plan, fused::plan_of(problem, group, stream.device()));
  return fused::report_of(plan);
}

Support can_run(const ScaledMatmulReduceScatterArgs& args, Group& group, Stream& stream) {
  return fused::support_of(plan(args, group, stream));
}

}  // namespace tandem
