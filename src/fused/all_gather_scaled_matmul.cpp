#include <tandem/fused/all_gather_scaled_matmul.hpp>

#include <tandem/gemm/scaled_mm.hpp>

#include "base/try.hpp"
#include "fused/all_gather_scaled_matmul_check.hpp"
#include "fused/all_gather_scaled_matmul_steps.hpp"
#include "fused/gather_plan.hpp"
#include "fused/op_call.hpp"
#include "fused/op_memory.hpp"
#include "fused/scaled_arguments.hpp"

namespace tandem {
namespace fused {
namespace {

/// The plan of this problem; decided, and put into words, when the group meets it first.
Result<SharedPlan> plan_of(const ScaledGatherProblem& problem, Group& group, Device& device) {
  auto& plans = plans_of<ScaledGatherProblem>(group, "fused.scaled_gather");
  if (SharedPlan known = plans.find(problem)) return known;
  const GatherProblem& gather = problem.gather;
  // Any sizes and types will do: whether there are scaled products on this device.
  TANDEM_TRY(check_runs({.m = gather.rows(), .n = gather.sum_n, .k = gather.k(), .a = gather.dtype}, device));
  TANDEM_ASSIGN(OpPlan plan, decide(gather,
                                    {.op = "all_gather_scaled_matmul",
                                     .agreed = agreed_text(problem),
                                     .beside_bytes = problem.beside_bytes()},
                                    group, device));
  return plans.insert(problem, std::move(plan));
}

Result<Ready<ScaledGatherOp>> get_ready(const AllGatherScaledMatmulArgs& args,
                                        const ScaledGatherProblem& problem, Group& group, Stream& stream) {
  TANDEM_ASSIGN(const SharedPlan plan, plan_of(problem, group, stream.device()));
  TANDEM_ASSIGN(const ScaledGatherOp op, prepare(args, problem, group, stream));
  return Ready<ScaledGatherOp>{plan, op};
}

}  // namespace
}  // namespace fused

Result<OpReport> fused_all_gather_scaled_matmul(const AllGatherScaledMatmulArgs& args, Group& group,
                                                Stream& stream) {
  TANDEM_TRY(group.status());
  return fused::run_checked(group, stream, fused::check(args, group, stream),
                            [&](const fused::ScaledGatherProblem& problem, Stream& on) {
                              return fused::get_ready(args, problem, group, on);
                            });
}

Result<OpReport> plan(const AllGatherScaledMatmulArgs& args, Group& group, Stream& stream) {
  TANDEM_TRY(group.status());
  TANDEM_ASSIGN(const auto problem, fused::check(args, group, stream));
  TANDEM_ASSIGN(const fused::SharedPlan plan, fused::plan_of(problem, group, stream.device()));
  return fused::report_of(plan);
}

Support can_run(const AllGatherScaledMatmulArgs& args, Group& group, Stream& stream) {
  return fused::support_of(plan(args, group, stream));
}

}  // namespace tandem
