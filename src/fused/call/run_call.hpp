#pragma once

#include <memory>
#include <tandem/base/error.hpp>
#include <tandem/base/support.hpp>
#include <tandem/bootstrap/group.hpp>
#include <tandem/device/stream.hpp>
#include <tandem/fused/report.hpp>
#include <tandem/symm/handle.hpp>
#include <tandem/trace/enqueue_trace.hpp>

#include "base/function_ref.hpp"
#include "fused/call/plan.hpp"

namespace tandem::fused {

[[nodiscard]] OpReport report_of(const std::shared_ptr<OpPlan>& plan);
[[nodiscard]] inline Support support_of(const Result<OpReport>& plan) {
  return plan ? Support::yes() : Support::no(plan.error().text());
}

/// A checked call of any fused op that has its plan.
struct PlannedCall {
  std::shared_ptr<OpPlan> plan;
  Group& group;
  Stream& stream;
  /// Binds the call's tensors to the plan's program. Behind lanes and scratch memory.
  FunctionRef<void(program::Bindings& bindings)> bind;
  /// The memory of peers that the op reads where it is, if any.
  std::shared_ptr<symm::Handle> in_place = {};
  trace::EnqueueTrace* trace = nullptr;
};

/// Finds the call's memory, binds it, and prepares the products of its program for the stream and for how its
/// tensors lie; so nothing is loaded or allocated between steps.
[[nodiscard]] Result<void> make_ready(OpPlan& plan, const PlannedCall& call, Stream& stream);
/// Enqueues the program of a plan that is ready. `workspace` may be null where the program needs none.
[[nodiscard]] Result<void> enqueue(OpPlan& plan, Group& group, Stream& stream, symm::Handle* workspace);

/// The last part of every fused op's road, behind its check and plan: ready, agree, run the program or launch
/// the graph of an earlier call, report. A call that is refused here tells the other ranks.
[[nodiscard]] Result<OpReport> run_call(const PlannedCall& call);

}  // namespace tandem::fused
