#include <tandem/fused/layout.hpp>
#include <tandem/fused/matmul_reduce_scatter.hpp>
#include <tandem/fused/scaled_matmul_reduce_scatter.hpp>

#include "base/try.hpp"
#include "coll/collective_call.hpp"
#include "fused/scatter/plan.hpp"

namespace tandem {
namespace {

/// An op that is refused here tells the other ranks, which would wait otherwise.
template <class Args>
Result<OpReport> run(const Args& args, Group& group, Stream& stream) {
  TANDEM_TRY(group.status());
  auto problem = fused::check(args, group, stream);
  if (!problem) return coll::refused(group, std::move(problem).error());
  return fused::scatter(fused::ScatterCall::of(args), *problem, group, stream);
}

template <class Args>
Result<OpReport> plan_only(const Args& args, Group& group, Stream& stream) {
  TANDEM_TRY(group.status());
  TANDEM_ASSIGN(const auto problem, fused::check(args, group, stream));
  TANDEM_ASSIGN(const auto plan, fused::plan_of(problem, group, stream.device()));
  return fused::report_of(plan);
}

}  // namespace

Result<OpReport> fused_matmul_reduce_scatter(const MatmulReduceScatterArgs& args, Group& group,
                                             Stream& stream) {
  return run(args, group, stream);
}
Result<OpReport> plan(const MatmulReduceScatterArgs& args, Group& group, Stream& stream) {
  return plan_only(args, group, stream);
}
Support can_run(const MatmulReduceScatterArgs& args, Group& group, Stream& stream) {
  return fused::support_of(plan(args, group, stream));
}
Result<Tensor> make_output(const MatmulReduceScatterArgs& args, const Group& group, Device& device) {
  TANDEM_ASSIGN(const Layout layout, output_layout(args, group.size(), group.rank()));
  return make_tensor(layout, args.a.front().dtype, device);
}

Result<OpReport> fused_scaled_matmul_reduce_scatter(const ScaledMatmulReduceScatterArgs& args, Group& group,
                                                    Stream& stream) {
  return run(args, group, stream);
}
Result<OpReport> plan(const ScaledMatmulReduceScatterArgs& args, Group& group, Stream& stream) {
  return plan_only(args, group, stream);
}
Support can_run(const ScaledMatmulReduceScatterArgs& args, Group& group, Stream& stream) {
  return fused::support_of(plan(args, group, stream));
}
Result<Tensor> make_output(const ScaledMatmulReduceScatterArgs& args, DType dtype, const Group& group,
                           Device& device) {
  TANDEM_ASSIGN(const Layout layout, output_layout(args, group.size(), group.rank()));
  return make_tensor(layout, dtype, device);
}

}  // namespace tandem
