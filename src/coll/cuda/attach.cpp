#include "coll/cuda/attach.hpp"

#include <cuda_runtime_api.h>

#include <memory>

#include "base/try.hpp"
#include "coll/backend.hpp"
#include "coll/cuda/algorithms.hpp"
#include "coll/cuda/exchange_kernels.hpp"
#include "coll/cuda/gather_kernel.hpp"
#include "coll/cuda/grid_barrier.hpp"
#include "coll/cuda/layer_sum.hpp"
#include "coll/cuda/layer_sum_kernel.hpp"
#include "coll/cuda/mailboxes.hpp"
#include "coll/cuda/nan_check_kernel.hpp"
#include "coll/cuda/vectors.hpp"
#include "device/cuda/cuda_error.hpp"
#include "device/cuda/cuda_stream.hpp"
#include "device/cuda/strided_copy.hpp"
#include "symm/reporter.hpp"

namespace tandem::coll {
namespace {

using tandem::cuda::check_cuda;
using tandem::cuda::CurrentDevice;
using tandem::cuda::load_kernels;
using tandem::cuda::Waits;

class CudaBackend final : public Backend {
 public:
  explicit CudaBackend(int num_multiprocessors)
      : max_blocks_(8 * num_multiprocessors), num_multiprocessors_(num_multiprocessors) {}

  [[nodiscard]] Result<void> reduce_stack(const ReduceStackArgs& args, Stream& stream) override {
    TANDEM_ASSIGN(auto* const on, tandem::cuda::cuda_stream(stream, "reduce_stack"));
    return on->enqueue("reduce_stack", Waits::kForNobody, [&](cudaStream_t native) {
      return cuda::launch_layer_sum(cuda::layer_sum_of(args), max_blocks_, native);
    });
  }
  [[nodiscard]] bool has_copy_engines() const override { return true; }
  [[nodiscard]] bool uses_copy_engines(const Stream& stream) const override {
    const auto* const on = dynamic_cast<const tandem::cuda::CudaStream*>(&stream);
    return on != nullptr && on->uses_copy_engines();
  }
  [[nodiscard]] Answer can_copy_aside(const TensorView& from, const TensorView& to) const override {
    if (from.numel() == 0 || tandem::cuda::can_copy_by_engine(CopyLoops::between(from, to)))
      return Answer::yes();
    return Answer::no("copy engines do not take these strides");
  }
  [[nodiscard]] Result<void> copy_aside(const TensorView& from, const TensorView& to,
                                        Stream& stream) override {
    if (from.numel() == 0) return {};
    TANDEM_ASSIGN(auto* const on, tandem::cuda::cuda_stream(stream, "copy"));
    return on->copy_by_engine(from, to);
  }
  [[nodiscard]] Result<void> reduce_stack_aside(const ReduceStackArgs& args, Stream& stream) override {
    TANDEM_ASSIGN(auto* const on, tandem::cuda::cuda_stream(stream, "reduce_stack"));
    return on->enqueue("reduce_stack", Waits::kForNobody, [&](cudaStream_t native) {
      return cuda::launch_layer_sum(cuda::layer_sum_of(args), num_multiprocessors_, native);
    });
  }
  [[nodiscard]] Result<void> reduce_layers_aside(const ReduceLayersArgs& args, Stream& stream) override {
    TANDEM_ASSIGN(auto* const on, tandem::cuda::cuda_stream(stream, "reduce_scatter"));
    return on->enqueue("reduce_scatter", Waits::kForNobody, [&](cudaStream_t native) {
      return cuda::launch_layer_sum(cuda::layer_sum_of(args), num_multiprocessors_, native);
    });
  }
  [[nodiscard]] int max_layers() const override { return cuda::kMaxAddresses; }
  [[nodiscard]] Result<void> reduce_layers(const ReduceLayersArgs& args, const EndBarrier& end,
                                           Stream& stream) override {
    TANDEM_ASSIGN(auto* const on, tandem::cuda::cuda_stream(stream, "reduce_scatter"));
    TANDEM_ASSIGN(const auto boxes, cuda::mailboxes_of(end.group, *on));
    if (!boxes) TANDEM_TRY(end.workspace.barrier(stream, end.channel + 1));
    TANDEM_ASSIGN(const cuda::GridBarrier at_end, cuda::grid_barrier_of(end, *on));
    const cuda::SumBarriers barriers = {.before = boxes.value_or(cuda::Mailboxes()), .at_end = at_end};
    return on->enqueue("reduce_scatter", Waits::kForPeers, [&](cudaStream_t native) {
      return cuda::launch_layer_sum(cuda::layer_sum_of(args), barriers, args.largest_bytes, max_blocks_,
                                    native);
    });
  }
  [[nodiscard]] Result<void> look_for_nan(const NanCheckArgs& args,
                                          const std::shared_ptr<symm::Handle>& reporter,
                                          Stream& stream) override {
    TANDEM_ASSIGN(auto* const on, tandem::cuda::cuda_stream(stream, "NaN check"));
    cuda::NanCheck check{.rows = ElementRows::of(args.input),
                         .rule = nan_rule(args.input.dtype),
                         .element_bytes = static_cast<int>(size_bytes(args.input.dtype)),
                         .control = static_cast<symm::KernelControl*>(reporter->kernel_handle().control)};
    check.by_vectors =
        check.rows.step == 1 && cuda::is_aligned(check.rows.data, size_bytes(args.input.dtype));
    symm::set_what(args.op, args.tensor, check.report);
    symm::set_sizes(args.input.sizes, check.report);
    return on->enqueue("NaN check", Waits::kForNobody, [&](cudaStream_t native) {
      return cuda::launch_nan_check(check, num_multiprocessors_, native);
    });
  }
  [[nodiscard]] AlgorithmLists algorithms() const override { return cuda::algorithms(); }

 private:
  int max_blocks_;
  int num_multiprocessors_;
};

}  // namespace

tandem::cuda::KernelList cuda::kernels() {
  return tandem::cuda::joined(
      {layer_sum_kernels(), gather_kernels(), exchange_kernels(), nan_check_kernels()});
}

Result<void> attach_cuda(Device& device) {
  const int gpu = device.id().index;
  const CurrentDevice current(gpu);
  TANDEM_TRY(check_cuda("collectives: load kernels", load_kernels(cuda::kernels())));
  int num_multiprocessors = 0;
  TANDEM_TRY(check_cuda("collectives",
                        cudaDeviceGetAttribute(&num_multiprocessors, cudaDevAttrMultiProcessorCount, gpu)));
  device.attach<Backend>(std::make_shared<CudaBackend>(num_multiprocessors));
  return {};
}

}  // namespace tandem::coll
