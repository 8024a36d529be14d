#include <tandem/fused/all_gather_matmul.hpp>

#include <tandem/gemm/mm.hpp>

#include "base/try.hpp"
#include "fused/all_gather_matmul_check.hpp"
#include "fused/all_gather_matmul_native.hpp"
#include "fused/all_gather_matmul_steps.hpp"
#include "fused/gather_plan.hpp"
#include "fused/native_gather.hpp"
#include "fused/op_call.hpp"
#include "fused/op_memory.hpp"

namespace tandem {
namespace fused {
namespace {

/// The plan of this problem; decided, and put into words, when the group meets it first.
Result<OpPlan*> plan_of(const AllGatherMatmulArgs& args, const GatherProblem& problem, Group& group,
                        Device& device) {
  auto& plans = plans_of<GatherProblem>(group, "fused.gather");
  if (OpPlan* known = plans.find(problem)) return known;
  // Any size will do: whether there are products of these types on this device.
  TANDEM_TRY(gemm::plan(
      {.m = problem.rows(), .n = problem.sum_n, .k = problem.k(), .in = problem.dtype, .out = problem.dtype},
      device));
  const std::string note = describe_by_mm(args, problem, device);
  TANDEM_ASSIGN(
      OpPlan plan,
      decide(problem,
             {.op = "all_gather_matmul", .native = can_run_native(problem, device), .native_note = note},
             group, device));
  return plans.insert(problem, std::move(plan));
}

Result<Ready<GatherOp>> get_ready(const AllGatherMatmulArgs& args, const GatherProblem& problem, Group& group,
                                  Stream& stream) {
  TANDEM_ASSIGN(auto* const plan, plan_of(args, problem, group, stream.device()));
  TANDEM_ASSIGN(const GatherOp op, prepare(args, problem, plan->algorithm, group, stream));
  TANDEM_TRY(prepare_once(*plan, op));
  return Ready<GatherOp>{plan, op};
}

}  // namespace
}  // namespace fused

Result<OpReport> fused_all_gather_matmul(const AllGatherMatmulArgs& args, Group& group, Stream& stream) {
  TANDEM_TRY(group.status());
  return fused::run_checked(group, stream, fused::check(args, group, stream),
                            [&](const fused::GatherProblem& problem, Stream& on) {
                              return fused::get_ready(args, problem, group, on);
                            });
}

Result<OpReport> plan(const AllGatherMatmulArgs& args, Group& group, Stream& stream) {
  TANDEM_TRY(group.status());
  TANDEM_ASSIGN(const auto problem, fused::check(args, group, stream));
  TANDEM_ASSIGN(const fused::OpPlan* plan, fused::plan_of(args, problem, group, stream.device()));
  return fused::report_of(*plan);
}

Support can_run(const AllGatherMatmulArgs& args, Group& group, Stream& stream) {
  return fused::support_of(plan(args, group, stream));
}

}  // namespace tandem
