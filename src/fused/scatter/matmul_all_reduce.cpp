#include <tandem/fused/layout.hpp>
#include <tandem/fused/matmul_all_reduce.hpp>
#include <tandem/fused/scaled_matmul_all_reduce.hpp>

#include "base/try.hpp"
#include "fused/call/run_op.hpp"
#include "fused/scatter/plan.hpp"

namespace tandem {

Result<OpReport> fused_matmul_all_reduce(const MatmulAllReduceArgs& args, Group& group, Stream& stream) {
  return fused::run_op(fused::check(args, group, stream), group, stream);
}
Result<OpReport> plan(const MatmulAllReduceArgs& args, Group& group, Stream& stream) {
  return fused::plan_op(fused::check(args, group, stream), group, stream.device());
}
Support can_run(const MatmulAllReduceArgs& args, Group& group, Stream& stream) {
  return fused::support_of(plan(args, group, stream));
}
Result<Tensor> make_output(const MatmulAllReduceArgs& args, Device& device) {
  TANDEM_ASSIGN(const Layout layout, output_layout(args));
  return make_tensor(layout, args.a.front().dtype, device);
}

Result<OpReport> fused_scaled_matmul_all_reduce(const ScaledMatmulAllReduceArgs& args, Group& group,
                                                Stream& stream) {
  return fused::run_op(fused::check(args, group, stream), group, stream);
}
Result<OpReport> plan(const ScaledMatmulAllReduceArgs& args, Group& group, Stream& stream) {
  return fused::plan_op(fused::check(args, group, stream), group, stream.device());
}
Support can_run(const ScaledMatmulAllReduceArgs& args, Group& group, Stream& stream) {
  return fused::support_of(plan(args, group, stream));
}
Result<Tensor> make_output(const ScaledMatmulAllReduceArgs& args, DType dtype, Device& device) {
  TANDEM_ASSIGN(const Layout layout, output_layout(args));
  return make_tensor(layout, dtype, device);
}

}  // namespace tandem
