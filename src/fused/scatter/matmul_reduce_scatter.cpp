#include <tandem/fused/matmul_reduce_scatter.hpp>

#include <tandem/gemm/mm.hpp>

#include "base/try.hpp"
#include "fused/matmul_reduce_scatter_check.hpp"
#include "fused/matmul_reduce_scatter_steps.hpp"
#include "fused/op_call.hpp"
#include "fused/call/group_memory.hpp"
#include "fused/scatter_plan.hpp"

namespace tandem {
namespace fused {
namespace {

/// The plan of this problem; decided, and put into words, when the group meets it first.
Result<SharedPlan> plan_of(const ScatterProblem& problem, Group& group, Device& device) {
  auto& plans = plans_of<ScatterProblem>(group, "fused.scatter");
  if (SharedPlan known = plans.find(problem)) return known;
  // Any size will do: whether there are products of these types on this device.
  TANDEM_TRY(gemm::plan({.m = problem.rows(),
                         .n = problem.n(),
                         .k = problem.sum_k,
                         .in = problem.dtype,
                         .out = problem.partials},
                        device));
  TANDEM_ASSIGN(OpPlan plan, decide("matmul_reduce_scatter", problem, group, device));
  return plans.insert(problem, std::move(plan));
}

Result<Ready<MatmulScatterOp>> get_ready(const MatmulReduceScatterArgs& args, const ScatterProblem& problem,
                                         Group& group, Stream& stream) {
  TANDEM_ASSIGN(const SharedPlan plan, plan_of(problem, group, stream.device()));
  TANDEM_ASSIGN(const MatmulScatterOp op, prepare(args, problem, plan->algorithm, group, stream));
  TANDEM_TRY(prepare_once(*plan, op));
  return Ready<MatmulScatterOp>{plan, op};
}

}  // namespace
}  // namespace fused

Result<OpReport> fused_matmul_reduce_scatter(const MatmulReduceScatterArgs& args, Group& group,
                                             Stream& stream) {
  TANDEM_TRY(group.status());
  return fused::run_checked(group, stream, fused::check(args, group, stream),
                            [&](const fused::ScatterProblem& problem, Stream& on) {
                              return fused::get_ready(args, problem, group, on);
                            });
}

Result<OpReport> plan(const MatmulReduceScatterArgs& args, Group& group, Stream& stream) {
  TANDEM_TRY(group.status());
  TANDEM_ASSIGN(const auto problem, fused::check(args, group, stream));
  TANDEM_ASSIGN(const fused::SharedPlan plan, fused::plan_of(problem, group, stream.device()));
  return fused::report_of(plan);
}

Support can_run(const MatmulReduceScatterArgs& args, Group& group, Stream& stream) {
  return fused::support_of(plan(args, group, stream));
}

}  // namespace tandem
