#pragma once

#include <tandem/base/error.hpp>
#include <tandem/base/support.hpp>
#include <tandem/fused/report.hpp>
#include <tandem/symm/handle.hpp>

#include "base/try.hpp"
#include "coll/collective_call.hpp"
#include "fused/op_memory.hpp"

namespace tandem::fused {

[[nodiscard]] inline OpReport report_of(const OpPlan& plan) {
  return {plan.algorithm, plan.reason, plan.key};
}
[[nodiscard]] inline Support support_of(const Result<OpReport>& plan) {
  return plan ? Support::yes() : Support::no(plan.error().text());
}

/// The last part of every fused op's road, behind its check, plan and memory: agree, enqueue by the plan's
/// algorithm, report. `Op` has workspace_bytes(), enqueue_serial() and enqueue_pipelined().
template <class Op>
[[nodiscard]] Result<OpReport> run_op(const OpPlan& plan, const Op& op) {
  const coll::CollectiveCall call{.group = op.group,
                                  .stream = op.stream,
                                  .fingerprint = plan.fingerprint,
                                  .workspace_bytes = workspace_bytes(op, plan.algorithm),
                                  .label = plan.label};
  if (op.args.trace != nullptr) op.args.trace->begin(plan.label);
  TANDEM_TRY(coll::run_collective(call, [&](symm::Handle* workspace) {
    return plan.algorithm == Algorithm::kSerial ? enqueue_serial(op, workspace)
                                                : enqueue_pipelined(op, workspace);
  }));
  return report_of(plan);
}

}  // namespace tandem::fused
