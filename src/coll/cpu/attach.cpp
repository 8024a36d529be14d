#include "coll/cpu/attach.hpp"

#include <algorithm>
#include <iterator>
#include <memory>
#include <tandem/cpu/launch.hpp>
#include <utility>

#include "base/try.hpp"
#include "coll/backend.hpp"
#include "coll/cpu/nan_scan.hpp"
#include "coll/cpu/stack_sum.hpp"
#include "symm/cpu/group_use.hpp"
#include "symm/reporter.hpp"

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

/// A check as a stream's task.
class NanCheck {
 public:
  NanCheck(const NanCheckArgs& args, std::shared_ptr<symm::Handle> reporter)
      : input_(args.input),
        reporter_(std::move(reporter)),
        peers_(static_cast<symm::Peers*>(reporter_->kernel_handle().control)) {
    symm::NanReport report;
    symm::set_what(args.op, args.tensor, report);
    std::copy(std::begin(report.what), std::end(report.what), what_);
  }

  Result<void> operator()() const {
    const cpu::FoundNan found = cpu::find_nan(input_);
    if (found.count == 0) return {};
    symm::NanReport report;
    report.count = found.count;
    report.first = found.first;
    symm::set_sizes(input_.sizes, report);
    std::copy(std::begin(what_), std::end(what_), report.what);
    const symm::cpu::GroupUse group(*peers_);
    TANDEM_TRY(group.check());
    peers_->group->poison(symm::nan_error(peers_->rank, report), peers_->rank);
    return peers_->group->status();
  }

 private:
  TensorView input_;
  std::shared_ptr<symm::Handle> reporter_;  ///< keeps peers_
  symm::Peers* peers_;
  char what_[symm::NanReport::kWhatBytes];
};

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
  [[nodiscard]] Result<void> look_for_nan(const NanCheckArgs& args,
                                          const std::shared_ptr<symm::Handle>& reporter,
                                          Stream& stream) override {
    return tandem::cpu::launch(stream, tandem::cpu::Task(NanCheck(args, reporter)));
  }
};

}  // namespace

void attach_cpu(Device& device) {
  device.attach<Backend>(std::make_shared<CpuBackend>());
}

}  // namespace tandem::coll
