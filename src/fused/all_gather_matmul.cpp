#include <tandem/fused/all_gather_matmul.hpp>

#include <algorithm>
#include <tandem/base/log.hpp>
#include <tandem/gemm/mm.hpp>

#include "base/format.hpp"
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
Result<SharedPlan> plan_of(const AllGatherMatmulArgs& args, const GatherProblem& problem, Group& group,
                           Device& device) {
  auto& plans = plans_of<GatherProblem>(group, "fused.gather");
  if (SharedPlan known = plans.find(problem)) return known;
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

/// Native is not recorded yet, so a recording of an `auto` call runs another algorithm, for which nothing can
/// be made then: it is made with the first eager calls. The workspace is every rank's affair; where this rank
/// alone cannot make its part, the eager call runs all the same, and a recording says what it lacks.
Result<void> prepare_recording(OpPlan& eager, const GatherOp& op) {
  Device& device = op.stream.device();
  const GatherProblem problem = as_recorded(op.args, op.problem, device);
  TANDEM_ASSIGN(const SharedPlan plan, plan_of(op.args, problem, op.group, device));
  const TensorView gathered = TensorView::contiguous(nullptr, {problem.total(), problem.unit_elements()},
                                                     problem.dtype, problem.device);
  const auto workspace_of = [&](Algorithm algorithm) {
    return gather_workspace_bytes(std::span(&gathered, 1), problem.world, algorithm);
  };
  // By sizes alone, whatever this rank alone would record.
  eager.recorded_workspace_bytes =
      std::max(workspace_of(Algorithm::kSerial), workspace_of(Algorithm::kPipelined));
  const auto recorded = prepare(op.args, problem, plan->algorithm, op.group, op.stream);
  const auto prepared = recorded.and_then([&](const GatherOp& that) { return prepare_once(*plan, that); });
  if (prepared) return {};
  log(op.group.config().log_level, LogLevel::kInfo,
      fmt::format("{} cannot be recorded: {}", eager.label, prepared.error().text()));
  return {};
}

/// Whether a recording of such a call runs another algorithm than the call itself.
bool is_recorded_otherwise(const OpPlan& plan, const GatherProblem& problem) {
  return plan.algorithm == Algorithm::kNative && problem.asked == Algorithm::kAuto &&
         problem.device.kind == DeviceKind::kCuda;
}

Result<Ready<GatherOp>> get_ready(const AllGatherMatmulArgs& args, const GatherProblem& problem, Group& group,
                                  Stream& stream) {
  TANDEM_ASSIGN(const SharedPlan plan, plan_of(args, problem, group, stream.device()));
  TANDEM_ASSIGN(const GatherOp op, prepare(args, problem, plan->algorithm, group, stream));
  TANDEM_ASSIGN(const bool is_new, prepare_once(*plan, op));
  // Streams and tensors that take turns for ever are not those of a recording.
  constexpr int kMostPreparations = 8;
  if (is_new && is_recorded_otherwise(*plan, problem) && plan->recordings_prepared < kMostPreparations) {
    ++plan->recordings_prepared;
    TANDEM_TRY(prepare_recording(*plan, op));
  }
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
  TANDEM_ASSIGN(const fused::SharedPlan plan, fused::plan_of(args, problem, group, stream.device()));
  return fused::report_of(plan);
}

Support can_run(const AllGatherMatmulArgs& args, Group& group, Stream& stream) {
  return fused::support_of(plan(args, group, stream));
}

}  // namespace tandem
