#pragma once

#include <tandem/base/error.hpp>
#include <tandem/fused/report.hpp>
#include <tandem/symm/handle.hpp>

#include "base/try.hpp"
#include "coll/collective_call.hpp"
#include "fused/op_memory.hpp"

namespace tandem::fused {

/// The last part of every fused op's road, behind its check, plan and memory: agree, enqueue by the plan's
/// algorithm, report. `Op` has workspace_bytes(), enqueue_serial() and enqueue_pipelined().
template <class Op>
[[nodiscard]] Result<OpReport> run_op(const OpPlan& plan, const Op& op) {
  const coll::CollectiveCall call{.group = op.group,
                                  .stream = op.stream,
                                  .fingerprint = plan.fingerprint,
                                  .workspace_bytes = workspace_bytes(op, plan.algorithm)};
  TANDEM_TRY(coll::run_collective(call, [&](symm::Handle* workspace) {
    return plan.algorithm == Algorithm::kSerial ? enqueue_serial(op, workspace)
                                                : enqueue_pipelined(op, workspace);
  }));
  return OpReport{plan.algorithm, plan.reason, plan.key};
}

}  // namespace tandem::fused
