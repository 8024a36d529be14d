#include <tandem/fused/layout.hpp>
#include <tandem/fused/matmul_reduce_scatter.hpp>
#include <tandem/fused/scaled_matmul_reduce_scatter.hpp>

#include "base/try.hpp"
#include "fused/call/run_op.hpp"
#include "fused/scatter/plan.hpp"

namespace tandem {

Result<OpReport> fused_matmul_reduce_scatter(const MatmulReduceScatterArgs& args, Group& group,
                                             Stream& stream) {
  return fused::run_op(fused::check(args, group, stream), group, stream);
}
Result<OpReport> plan(const MatmulReduceScatterArgs& args, Group& group, Stream& stream) {
  return fused::plan_op(fused::check(args, group, stream), group, stream.device());
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
  return fused::run_op(fused::check(args, group, stream), group, stream);
}
Result<OpReport> plan(const ScaledMatmulReduceScatterArgs& args, Group& group, Stream& stream) {
  return fused::plan_op(fused::check(args, group, stream), group, stream.device());
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
