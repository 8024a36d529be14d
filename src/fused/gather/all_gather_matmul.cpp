#include <tandem/fused/all_gather_matmul.hpp>
#include <tandem/fused/all_gather_scaled_matmul.hpp>
#include <tandem/fused/layout.hpp>

#include "base/try.hpp"
#include "coll/collective_call.hpp"
#include "fused/gather/plan.hpp"

namespace tandem {
namespace {

fused::GatherCall call_of(const AllGatherMatmulArgs& args, const fused::GatherProblem&) {
  return fused::GatherCall::of(args);
}
fused::GatherCall call_of(const AllGatherScaledMatmulArgs& args, const fused::GatherProblem& problem) {
  return fused::GatherCall::of(args, problem.scale_mode);
}

/// An op that is refused here tells the other ranks, which would wait otherwise.
template <class Args>
Result<OpReport> run(const Args& args, Group& group, Stream& stream) {
  TANDEM_TRY(group.status());
  auto problem = fused::check(args, group, stream);
  if (!problem) return coll::refused(group, std::move(problem).error());
  return fused::gather(call_of(args, *problem), *problem, group, stream);
}

template <class Args>
Result<OpReport> plan_only(const Args& args, Group& group, Stream& stream) {
  TANDEM_TRY(group.status());
  TANDEM_ASSIGN(const auto problem, fused::check(args, group, stream));
  TANDEM_ASSIGN(const auto plan, fused::plan_of(call_of(args, problem), problem, group, stream.device()));
  return fused::report_of(plan);
}

}  // namespace

Result<OpReport> fused_all_gather_matmul(const AllGatherMatmulArgs& args, Group& group, Stream& stream) {
  return run(args, group, stream);
}
Result<OpReport> plan(const AllGatherMatmulArgs& args, Group& group, Stream& stream) {
  return plan_only(args, group, stream);
}
Support can_run(const AllGatherMatmulArgs& args, Group& group, Stream& stream) {
  return fused::support_of(plan(args, group, stream));
}
Result<Tensor> make_output(const AllGatherMatmulArgs& args, Device& device, int i) {
  TANDEM_ASSIGN(const Layout layout, output_layout(args, i));
  return make_tensor(layout, args.a.dtype, device);
}
Result<Tensor> make_gathered(const AllGatherMatmulArgs& args, Device& device) {
  TANDEM_ASSIGN(const Layout layout, gathered_layout(args));
  return make_tensor(layout, args.a.dtype, device);
}

Result<OpReport> fused_all_gather_scaled_matmul(const AllGatherScaledMatmulArgs& args, Group& group,
                                                Stream& stream) {
  return run(args, group, stream);
}
Result<OpReport> plan(const AllGatherScaledMatmulArgs& args, Group& group, Stream& stream) {
  return plan_only(args, group, stream);
}
Support can_run(const AllGatherScaledMatmulArgs& args, Group& group, Stream& stream) {
  return fused::support_of(plan(args, group, stream));
}
Result<Tensor> make_output(const AllGatherScaledMatmulArgs& args, DType dtype, Device& device, int i) {
  TANDEM_ASSIGN(const Layout layout, output_layout(args, i));
  return make_tensor(layout, dtype, device);
}
Result<Tensor> make_gathered(const AllGatherScaledMatmulArgs& args, Device& device) {
  TANDEM_ASSIGN(const Layout layout, gathered_layout(args));
  return make_tensor(layout, args.a.dtype, device);
}

}  // namespace tandem
