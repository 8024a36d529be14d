#pragma once

#include <memory>
#include <tandem/base/error.hpp>
#include <tandem/base/support.hpp>
#include <tandem/fused/report.hpp>
#include <tandem/symm/handle.hpp>
#include <utility>

#include "base/try.hpp"
#include "coll/collective_call.hpp"
#include "fused/op_memory.hpp"
#include "fused/repeated_calls.hpp"

namespace tandem::fused {

[[nodiscard]] inline OpReport report_of(const OpPlan& plan) {
  return {.algorithm = plan.algorithm,
          .reason = plan.reason,
          .key = plan.key,
          .candidates = plan.candidates,
          .tune_key = plan.tune_key ? &*plan.tune_key : nullptr};
}
[[nodiscard]] inline Support support_of(const Result<OpReport>& plan) {
  return plan ? Support::yes() : Support::no(plan.error().text());
}

/// A call that is ready to be enqueued: all that can fail on one rank alone has not failed.
template <class Op>
struct Ready {
  const OpPlan* plan;
  Op op;
};

/// Makes, before anything of the op is enqueued, what its products would make at their first run on a stream.
/// Calls take turns between the caller's and the one that recordings are made on.
template <class Op>
[[nodiscard]] Result<void> prepare_once(const OpPlan& plan, const Op& op) {
  auto& [last, before] = plan.prepared_for;
  if (last == &op.stream || before == &op.stream) return {};
  TANDEM_TRY(prepare_products(op, plan.algorithm));
  before = last;
  last = &op.stream;
  return {};
}

/// An op that may be launched as a recording of an earlier call: add_to_key() adds all that it enqueues
/// depends on besides its plan and the workspace.
template <class Op>
concept Repeatable = requires(const Op& op, CallKey& key) {
  add_to_key(op, key);
};

/// This call among those that came before, or null where it shall not be recorded.
template <class Op>
[[nodiscard]] Replay* note_call(const OpPlan& plan, const Op& op) {
  if constexpr (Repeatable<Op>) {
    Replays* const replays = replays_for(plan, op.group, op.stream, op.args.trace != nullptr);
    if (replays == nullptr) return nullptr;
    add_to_key(op, replays->new_key().add(&plan));
    return replays->note_call();
  }
  return nullptr;
}

/// The memory of peers that the op reads where it is, if any.
template <class Op>
[[nodiscard]] std::shared_ptr<symm::Handle> in_place_of(const Op& op) {
  if constexpr (requires { op.args.a_handle; }) {
    return op.args.a_handle;
  } else {
    return nullptr;
  }
}

/// Behind a call that was enqueued step by step, so that no peer waits meanwhile. `get_ready` makes the same
/// call ready on another stream.
template <class GetReady>
[[nodiscard]] Result<void> record_call(Replay& replay, Group& group, Device& device, symm::Handle* workspace,
                                       GetReady get_ready) {
  TANDEM_ASSIGN(Stream* const on, recording_stream(group, device));
  TANDEM_ASSIGN(const auto again, get_ready(*on));
  TANDEM_ASSIGN(replay.graph, record(*again.plan, group, *on,
                                     [&] { return enqueue(again.op, again.plan->algorithm, workspace); }));
  replay.workspace = workspace;
  replay.in_place = in_place_of(again.op);
  return {};
}

/// The last part of every fused op's road, behind its check, plan and memory: agree, enqueue by the plan's
/// algorithm, report. `Op` has workspace_bytes() and enqueue(). `get_ready(stream)`: the same call again.
template <class Op, class GetReady>
[[nodiscard]] Result<OpReport> run_op(const OpPlan& plan, const Op& op, GetReady get_ready) {
  const coll::CollectiveCall call{.group = op.group,
                                  .stream = op.stream,
                                  .fingerprint = plan.fingerprint,
                                  .workspace_bytes = workspace_bytes(op, plan.algorithm),
                                  .label = plan.label};
  if (op.args.trace != nullptr) op.args.trace->begin(plan.label);
  OpReport report = report_of(plan);
  Replay* const replay = note_call(plan, op);
  symm::Handle* used = nullptr;
  TANDEM_TRY(coll::run_collective(call, [&](symm::Handle* workspace) -> Result<void> {
    used = workspace;
    const auto in_place = in_place_of(op);
    if (replay == nullptr || !can_launch(*replay, workspace, in_place.get()))
      return enqueue(op, plan.algorithm, workspace);
    report.as_graph = true;
    return replay->graph->launch(op.stream);
  }));
  const bool is_due = replay != nullptr && !report.as_graph && !replay->is_refused &&
                      replay->num_calls >= op.group.config().record_after;
  if (!is_due) return report;
  if (const auto done = record_call(*replay, op.group, op.stream.device(), used, get_ready); !done)
    give_up_recording(*replay, op.group, plan, done.error());
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
  return run_op(*ready->plan, ready->op, [&](Stream& on) { return get_ready(*problem, on); });
}

}  // namespace tandem::fused
