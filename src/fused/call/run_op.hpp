#pragma once

#include <tandem/base/error.hpp>
#include <tandem/bootstrap/group.hpp>
#include <tandem/device/stream.hpp>
#include <tandem/fused/report.hpp>
#include <utility>

#include "base/try.hpp"
#include "bootstrap/hosts.hpp"
#include "coll/collective_call.hpp"
#include "fused/call/run_call.hpp"

namespace tandem::fused {

// The road of every fused op behind the check of its arguments. `Checked` is what a direction's check()
// gives: a call, and the problem that it comes down to. plan_of() and bind() are the direction's too.

/// Takes the group's plan of the problem, and runs the call. An op that is refused here, or was by its check,
/// tells the other ranks, which would wait otherwise.
template <class Checked>
[[nodiscard]] Result<OpReport> run_op(Result<Checked> checked, Group& group, Stream& stream) {
  TANDEM_TRY(group.status());
  // Between hosts only steps of the program cross; all else is an affair of the ranks here.
  Group& here = bootstrap::within_host(group);
  if (!checked) return coll::refused(here, std::move(checked).error());
  auto plan = plan_of(*checked, here, stream.device());
  if (!plan) return coll::refused(here, std::move(plan).error());
  const auto& call = checked->call;
  const auto bind_tensors = [&](program::Bindings& bindings) {
    bind(call, checked->problem, (*plan)->roots, bindings);
  };
  PlannedCall planned{
      .plan = *plan, .group = here, .stream = stream, .bind = bind_tensors, .trace = call.trace};
  if constexpr (requires { call.a_handle; }) planned.in_place = call.a_handle;
  return run_call(planned);
}

/// What run_op() would do, as a report. The other ranks hear nothing of it.
template <class Checked>
[[nodiscard]] Result<OpReport> plan_op(const Result<Checked>& checked, Group& group, Device& device) {
  TANDEM_TRY(group.status());
  if (!checked) return tl::unexpected(checked.error());
  TANDEM_ASSIGN(const auto plan, plan_of(*checked, bootstrap::within_host(group), device));
  return report_of(plan);
}

}  // namespace tandem::fused
