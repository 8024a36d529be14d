#include "coll/cpu/attach.hpp"

#include <memory>
#include <tandem/cpu/launch.hpp>

#include "coll/backend.hpp"
#include "coll/cpu/stack_sum.hpp"

namespace tandem::coll {
namespace {

/// Where the sum goes, and what becomes of it.
template <class Args>
void set_result(const Args& args, cpu::StackSum& sum) {
  sum.out = args.out;
  sum.divisor = args.op == ReduceOp::kAvg ? static_cast<float>(sum.num_layers) : 1.0F;
  if (!args.bias) return;
  sum.bias = args.bias->data;
  sum.bias_stride = args.bias->stride(0);
}

cpu::StackSum stack_sum_of(const ReduceStackArgs& args) {
  cpu::StackSum sum;
  sum.stack = args.stack.data;
  sum.stack_dtype = args.stack.dtype;
  sum.num_layers = args.stack.size(0);
  set_result(args, sum);
  return sum;
}

cpu::StackSum sum_of_ranks(const ReduceRanksArgs& args) {
  const symm::KernelHandle ranks = args.handle->kernel_handle();
  cpu::StackSum sum;
  sum.blocks = ranks.buffers;
  sum.offset_bytes = args.offset_bytes;
  sum.stack_dtype = args.dtype;
  sum.num_layers = ranks.world_size;
  set_result(args, sum);
  return sum;
}

class CpuBackend final : public Backend {
 public:
  [[nodiscard]] Result<void> reduce_stack(const ReduceStackArgs& args, Stream& stream) override {
    return tandem::cpu::launch(stream, tandem::cpu::Task([sum = stack_sum_of(args)]() -> Result<void> {
                                 cpu::add_up(sum);
                                 return {};
                               }));
  }
  [[nodiscard]] Result<void> reduce_ranks(const ReduceRanksArgs& args, Stream& stream) override {
    return tandem::cpu::launch(stream, tandem::cpu::Task([sum = sum_of_ranks(args)]() -> Result<void> {
                                 cpu::add_up(sum);
                                 return {};
                               }));
  }
};

}  // namespace

void attach_cpu(Device& device) {
  device.attach<Backend>(std::make_shared<CpuBackend>());
}

}  // namespace tandem::coll
