#include <tandem/fused/matmul_reduce_scatter.hpp>

#include <tandem/gemm/mm.hpp>

#include "base/format.hpp"
#include "base/try.hpp"
#include "base/usable_cores.hpp"
#include "coll/collective_call.hpp"
#include "fused/choose.hpp"
#include "fused/matmul_reduce_scatter_check.hpp"
#include "fused/matmul_reduce_scatter_steps.hpp"
#include "fused/op_call.hpp"
#include "fused/op_memory.hpp"

namespace tandem {
namespace fused {
namespace {

Workload workload_of(const ScatterProblem& problem, const Group& group) {
  const std::int64_t chunk_elements = shard_stride(problem.total(), problem.world) * problem.unit_elements();
  return {.kind = problem.device.kind,
          .world = problem.world,
          .cores = usable_cores(),
          .link = group.config().link_delay,
          .chunk_bytes = chunk_elements * size_bytes(problem.partials),
          .chunk_flops = 2.0 * static_cast<double>(chunk_elements) * static_cast<double>(problem.n()),
          .pipelined_barriers = 2 * problem.world,
          .serial_barriers = 3};
}

/// The plan of this problem; decided, and put into words, when the group meets it first.
Result<const OpPlan*> plan_of(const ScatterProblem& problem, Group& group, Device& device) {
  auto& plans = plans_of<ScatterProblem>(group, "fused.scatter");
  if (const OpPlan* known = plans.find(problem)) return known;
  // Any size will do: whether there are products of these types on this device.
  TANDEM_TRY(gemm::plan({.m = problem.rows(),
                         .n = problem.n(),
                         .k = problem.sum_k,
                         .in = problem.dtype,
                         .out = problem.partials},
                        device));
  TANDEM_ASSIGN(Choice choice, choose("fused_matmul_reduce_scatter", problem.asked,
                                      workload_of(problem, group), problem.device));
  if (problem.num_copied > 0) {
    choice.reason +=
        fmt::format("; {} of {} a's copied once for their strides", problem.num_copied, problem.num_products);
  }
  if (choice.algorithm == Algorithm::kPipelined) TANDEM_TRY(open_side_stream(group, device));
  return plans.insert(
      problem, {.algorithm = choice.algorithm,
                .reason = std::move(choice.reason),
                .key = fmt::format("matmul_reduce_scatter {}x{}x{} {} dim {} {} w{}", problem.rows(),
                                   problem.n(), problem.sum_k, to_string(problem.dtype), problem.dim,
                                   to_string(problem.reduce_op), problem.world),
                .label = fmt::format("matmul_reduce_scatter [{},{},{}] {} {}", problem.rows(), problem.n(),
                                     problem.sum_k, to_string(problem.dtype), to_string(choice.algorithm)),
                .fingerprint = fmt::format("{} {}->{}", to_string(problem), to_string(problem.asked),
                                           to_string(choice.algorithm))});
}

/// A call that is ready to be enqueued: all that can fail on one rank alone has not failed.
struct Ready {
  const OpPlan* plan;
  ScatterOp op;
};
Result<Ready> get_ready(const MatmulReduceScatterArgs& args, const ScatterProblem& problem, Group& group,
                        Stream& stream) {
  TANDEM_ASSIGN(const OpPlan* plan, plan_of(problem, group, stream.device()));
  TANDEM_ASSIGN(const ScatterOp op, prepare(args, problem, plan->algorithm, group, stream));
  if (plan->prepared_for != &stream) {
    TANDEM_TRY(prepare_products(op, plan->algorithm));
    plan->prepared_for = &stream;
  }
  return Ready{plan, op};
}

}  // namespace
}  // namespace fused

Result<OpReport> fused_matmul_reduce_scatter(const MatmulReduceScatterArgs& args, Group& group,
                                             Stream& stream) {
  TANDEM_TRY(group.status());
  auto problem = fused::check(args, group, stream);
  if (!problem) return coll::refused(group, std::move(problem).error());
  auto ready = fused::get_ready(args, *problem, group, stream);
  if (!ready) return coll::refused(group, std::move(ready).error());
  return fused::run_op(*ready->plan, ready->op);
}

Result<OpReport> plan(const MatmulReduceScatterArgs& args, Group& group, Stream& stream) {
  TANDEM_TRY(group.status());
  TANDEM_ASSIGN(const auto problem, fused::check(args, group, stream));
  TANDEM_ASSIGN(const fused::OpPlan* plan, fused::plan_of(problem, group, stream.device()));
  return fused::report_of(*plan);
}

Support can_run(const MatmulReduceScatterArgs& args, Group& group, Stream& stream) {
  return fused::support_of(plan(args, group, stream));
}

}  // namespace tandem
