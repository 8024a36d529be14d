#include "coll/cuda/attach.hpp"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>
#include <memory>

#include "base/try.hpp"
#include "coll/backend.hpp"
#include "coll/cuda/gather_kernel.hpp"
#include "coll/cuda/layer_sum.hpp"
#include "coll/cuda/layer_sum_kernel.hpp"
#include "coll/cuda/meeting.hpp"
#include "coll/cuda/nccl_all_gather.hpp"
#include "device/cuda/cuda_error.hpp"
#include "device/cuda/cuda_stream.hpp"

namespace tandem::coll {
namespace {

using tandem::cuda::check_cuda;
using tandem::cuda::CurrentDevice;
using tandem::cuda::load_kernels;

/// What the kernel of a gather needs beside sizes.
bool fits_vectors(const GatherLayersArgs& args) {
  const auto is_aligned = [](const void* address) {
    return reinterpret_cast<std::uintptr_t>(address) % cuda::kGatherVector == 0;
  };
  return is_aligned(args.out) && std::all_of(args.layers.begin(), args.layers.end(), is_aligned);
}

class CudaBackend final : public Backend {
 public:
  explicit CudaBackend(int num_multiprocessors) : max_blocks_(8 * num_multiprocessors) {}

  [[nodiscard]] Result<void> reduce_stack(const ReduceStackArgs& args, Stream& stream) override {
    TANDEM_ASSIGN(auto* const on, tandem::cuda::cuda_stream(stream, "reduce_stack"));
    return add_up("reduce_stack", cuda::layer_sum_of(args), {}, *on);
  }
  [[nodiscard]] int max_layers() const override { return cuda::kMaxAddresses; }
  [[nodiscard]] Result<void> reduce_layers(const ReduceLayersArgs& args, const RanksMeet& meet,
                                           Stream& stream) override {
    TANDEM_ASSIGN(auto* const on, tandem::cuda::cuda_stream(stream, "reduce_scatter"));
    TANDEM_ASSIGN(const cuda::Meeting meeting, cuda::meeting_of(meet, *on));
    return add_up("reduce_scatter", cuda::layer_sum_of(args), meeting, *on);
  }
  [[nodiscard]] bool gathers_layers(std::int64_t layer_bytes) const override {
    return layer_bytes > 0 && layer_bytes % cuda::kGatherVector == 0;
  }
  [[nodiscard]] Result<bool> gather_layers(const GatherLayersArgs& args, const RanksMeet& meet,
                                           Stream& stream) override {
    if (!fits_vectors(args)) return false;
    TANDEM_ASSIGN(auto* const on, tandem::cuda::cuda_stream(stream, "all_gather"));
    TANDEM_ASSIGN(const cuda::Meeting meeting, cuda::meeting_of(meet, *on));
    cuda::LayerGather gather;
    std::copy(args.layers.begin(), args.layers.end(), gather.layers);
    gather.num_layers = static_cast<int>(args.layers.size());
    gather.first = args.first;
    gather.layer_bytes = args.layer_bytes;
    gather.out = args.out;
    const auto turn = on->take_turn();
    TANDEM_TRY(
        check_cuda("all_gather", cuda::launch_layer_gather(gather, meeting, max_blocks_, on->native())));
    TANDEM_TRY(on->keep_queue());
    return true;
  }
  [[nodiscard]] Result<bool> all_gather(const AllGatherArgs& args, const RanksMeet& meet,
                                        Stream& stream) override {
    return cuda::nccl_all_gather(args, meet, stream);
  }

 private:
  Result<void> add_up(std::string_view op, const cuda::LayerSum& sum, const cuda::Meeting& meeting,
                      tandem::cuda::CudaStream& stream) const {
    const auto turn = stream.take_turn();
    TANDEM_TRY(check_cuda(op, cuda::launch_layer_sum(sum, meeting, max_blocks_, stream.native())));
    return meeting.num_done == nullptr ? Result<void>() : stream.keep_queue();
  }

  int max_blocks_;
};

}  // namespace

tandem::cuda::KernelList cuda::kernels() {
  tandem::cuda::KernelList kernels = layer_sum_kernels();
  for (const auto& kernel : gather_kernels()) kernels.push_back(kernel);
  return kernels;
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
