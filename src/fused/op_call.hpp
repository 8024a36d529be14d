#pragma once

#include <tandem/base/error.hpp>
#include <tandem/base/support.hpp>
#include <tandem/fused/report.hpp>
#include <tandem/symm/handle.hpp>
#include <utility>

#include "base/try.hpp"
#include "coll/collective_call.hpp"
#include "fused/call_key.hpp"
#include "fused/op_memory.hpp"
#include "fused/repeated_calls.hpp"

namespace tandem::fused {

[[nodiscard]] inline OpReport report_of(const SharedPlan& plan) {
  return {.algorithm = plan->algorithm,
          .reason = plan->reason,
          .key = plan->key,
          .candidates = plan->candidates,
          .tune_key = plan->tune_key ? &*plan->tune_key : nullptr,
          .plan = plan};
}
[[nodiscard]] inline Support support_of(const Result<OpReport>& plan) {
  return plan ? Support::yes() : Support::no(plan.error().text());
}

/// A call that is ready to be enqueued: all that can fail on one rank alone has not failed.
template <class Op>
struct Ready {
  SharedPlan plan;
  Op op;
};

/// Makes, before anything of the op is enqueued, what its products would make at their first run on a stream,
/// and with tensors that lie and are aligned as these. Two kinds of calls may take turns: such as those on
/// the caller's stream and on the one that recordings are made on. False if that has been done.
template <class Op>
[[nodiscard]] Result<bool> prepare_once(OpPlan& plan, const Op& op) {
  LayoutKey layout;
  add_to_key(op, layout);
  const PreparedProducts here{op.stream.id(), layout.hash()};
  auto& [last, before] = plan.prepared;
  if (last == here || before == here) return false;
  TANDEM_TRY(prepare_products(op, plan.algorithm));
  if (op.stream.is_capturing()) return true;  // not all can be made in a recording
  before = last;
  last = here;
  return true;
}

/// The last part of every fused op's road, behind its check, plan and memory: agree, enqueue by the plan's
/// algorithm, report. `Op` has workspace_bytes() and enqueue(). `get_ready(stream)`: the same call again.
template <class Op, class GetReady>
[[nodiscard]] Result<OpReport> run_op(const SharedPlan& shared_plan, const Op& op, GetReady get_ready) {
  OpPlan& plan = *shared_plan;
  const coll::CollectiveCall call{.group = op.group,
                                  .stream = op.stream,
                                  .fingerprint = plan.fingerprint,
                                  .workspace_bytes = workspace_bytes(op, plan.algorithm),
                                  .recorded_workspace_bytes = plan.recorded_workspace_bytes,
                                  .label = plan.label};
  if (op.args.trace != nullptr) op.args.trace->begin(plan.label);
  RepeatedCall<Op> repeated(plan, op);
  TANDEM_TRY(coll::run_collective(
      call, [&](symm::Handle* workspace) { return repeated.enqueue_or_launch(workspace); }));
  repeated.record_if_due(get_ready);
  OpReport report = report_of(shared_plan);
  report.as_graph = repeated.is_graph();
  return report;
}

/// The road behind the check: an op that is refused here tells the other ranks, which would wait otherwise.
/// `get_ready(problem, stream)`.
template <class Problem, class GetReady>
[[nodiscard]] Result<OpReport> run_checked(Group& group, Stream& stream, Result<Problem> problem,
                                           GetReady get_ready) {
  if (!problem) return coll::refused(group, std::move(problem).error());
  auto ready = get_ready(*problem, stream);
  if (!ready) return coll::refused(group, std::move(ready).error());
  return run_op(ready->plan, ready->op, [&](Stream& on) { return get_ready(*problem, on); });
}

}  // namespace tandem::fused
