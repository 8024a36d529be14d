#include <tandem/fused/all_gather_matmul.hpp>
#include <tandem/fused/all_gather_scaled_matmul.hpp>
#include <tandem/fused/layout.hpp>

#include "base/format.hpp"
#include "base/try.hpp"
#include "fused/call/run_op.hpp"
#include "fused/gather/plan.hpp"

namespace tandem {

Result<OpReport> fused_all_gather_matmul(const AllGatherMatmulArgs& args, Group& group, Stream& stream) {
  return fused::run_op(fused::check(args, group, stream), group, stream);
}
Result<OpReport> plan(const AllGatherMatmulArgs& args, Group& group, Stream& stream) {
  return fused::plan_op(fused::check(args, group, stream), group, stream.device());
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
  return fused::run_op(fused::check(args, group, stream), group, stream);
}
Result<OpReport> fused_all_gather_block_scaled_matmul(const AllGatherScaledMatmulArgs& args, Group& group,
                                                      Stream& stream) {
  AllGatherScaledMatmulArgs by_blocks = args;
  if (args.scale_mode == ScaleMode::kDetect) by_blocks.scale_mode = ScaleMode::kBlockwiseSharded;
  if (fused::is_by_blocks(by_blocks.scale_mode))
    return fused_all_gather_scaled_matmul(by_blocks, group, stream);
  return failf(ErrorCode::kInvalidArgument,
               "fused_all_gather_block_scaled_matmul: scale_mode is {}, need blockwise_sharded, which detect "
               "means here, or blockwise_replicated",
               to_string(args.scale_mode));
}
Result<OpReport> plan(const AllGatherScaledMatmulArgs& args, Group& group, Stream& stream) {
  return fused::plan_op(fused::check(args, group, stream), group, stream.device());
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
