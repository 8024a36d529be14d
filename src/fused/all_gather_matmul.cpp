#include <tandem/fused/all_gather_matmul.hpp>

#include <tandem/gemm/mm.hpp>

#include "base/format.hpp"
#include "base/try.hpp"
#include "base/usable_cores.hpp"
#include "coll/collective_call.hpp"
#include "fused/all_gather_matmul_check.hpp"
#include "fused/all_gather_matmul_steps.hpp"
#include "fused/choose.hpp"
#include "fused/op_call.hpp"
#include "fused/op_memory.hpp"

namespace tandem {
namespace fused {
namespace {

Workload workload_of(const GatherProblem& problem, const Group& group) {
  const std::int64_t chunk_elements = shard_stride(problem.total(), problem.world) * problem.unit_elements();
  return {.kind = problem.device.kind,
          .world = problem.world,
          .cores = usable_cores(),
          .link = group.config().link_delay,
          .chunk_bytes = chunk_elements * size_bytes(problem.dtype),
          .chunk_flops = 2.0 * static_cast<double>(chunk_elements) * static_cast<double>(problem.k()),
          .pipelined_barriers = 3,
          .serial_barriers = 3};
}

/// The plan of this problem; decided, and put into words, when the group meets it first.
Result<const OpPlan*> plan_of(const GatherProblem& problem, Group& group, Device& device) {
  auto& plans = plans_of<GatherProblem>(group, "fused.gather");
  if (const OpPlan* known = plans.find(problem)) return known;
  // Any size will do: whether there are products of these types on this device.
  TANDEM_TRY(gemm::plan(
      {.m = problem.rows(), .n = problem.sum_n, .k = problem.k(), .in = problem.dtype, .out = problem.dtype},
      device));
  TANDEM_ASSIGN(Choice choice, choose("fused_all_gather_matmul", problem.asked, workload_of(problem, group),
                                      problem.device));
  if (problem.copies_a) choice.reason += "; a is copied once for its strides";
  if (choice.algorithm == Algorithm::kPipelined) TANDEM_TRY(open_side_stream(group, device));
  return plans.insert(
      problem, {.algorithm = choice.algorithm,
                .reason = std::move(choice.reason),
                .key = fmt::format("all_gather_matmul {}x{}x{} {} dim {} w{}", problem.rows(), problem.sum_n,
                                   problem.k(), to_string(problem.dtype), problem.dim, problem.world),
                .label = fmt::format("all_gather_matmul [{},{},{}] {} {}", problem.rows(), problem.sum_n,
                                     problem.k(), to_string(problem.dtype), to_string(choice.algorithm)),
                .fingerprint = fmt::format("{} {}->{}", to_string(problem), to_string(problem.asked),
                                           to_string(choice.algorithm))});
}

/// A call that is ready to be enqueued: all that can fail on one rank alone has not failed.
struct Ready {
  const OpPlan* plan;
  GatherOp op;
};
Result<Ready> get_ready(const AllGatherMatmulArgs& args, const GatherProblem& problem, Group& group,
                        Stream& stream) {
  TANDEM_ASSIGN(const OpPlan* plan, plan_of(problem, group, stream.device()));
  TANDEM_ASSIGN(const GatherOp op, prepare(args, problem, group, stream));
  if (plan->prepared_for != &stream) {
    TANDEM_TRY(prepare_products(op, plan->algorithm));
    plan->prepared_for = &stream;
  }
  return Ready{plan, op};
}

}  // namespace
}  // namespace fused

Result<OpReport> fused_all_gather_matmul(const AllGatherMatmulArgs& args, Group& group, Stream& stream) {
  TANDEM_TRY(group.status());
  auto problem = fused::check(args, group, stream);
  if (!problem) return coll::refused(group, std::move(problem).error());
  auto ready = fused::get_ready(args, *problem, group, stream);
  if (!ready) return coll::refused(group, std::move(ready).error());
  return fused::run_op(*ready->plan, ready->op);
}

Result<OpReport> plan(const AllGatherMatmulArgs& args, Group& group, Stream& stream) {
  TANDEM_TRY(group.status());
  TANDEM_ASSIGN(const auto problem, fused::check(args, group, stream));
  TANDEM_ASSIGN(const fused::OpPlan* plan, fused::plan_of(problem, group, stream.device()));
  return fused::report_of(*plan);
}

Support can_run(const AllGatherMatmulArgs& args, Group& group, Stream& stream) {
  return fused::support_of(plan(args, group, stream));
}

}  // namespace tandem
