#include "coll/cuda/grid_barrier.hpp"

#include <memory>
#include <tandem/device/device.hpp>
#include <utility>
#include <vector>

#include "base/try.hpp"
#include "device/cuda/cuda_stream.hpp"
#include "device/cuda/stream_watch.hpp"

namespace tandem::coll::cuda {
namespace {

/// One a group and device. Kernels may still run when the group has ended, so streams keep it as they keep
/// what kernels wait for.
class BlockCount final : public tandem::cuda::StreamWatch {
 public:
  explicit BlockCount(Buffer word) : word_(std::move(word)) {}
  [[nodiscard]] std::uint32_t* word() const { return static_cast<std::uint32_t*>(word_.data()); }
  [[nodiscard]] Result<void> status() override { return {}; }

 private:
  Buffer word_;
};

struct CountOfDevice {
  DeviceId device;
  std::shared_ptr<BlockCount> count;
};
using CountsOfGroup = std::vector<CountOfDevice>;

Result<std::shared_ptr<BlockCount>> count_of(Group& group, Device& device) {
  auto& known = group.extension<CountsOfGroup>([] { return std::make_shared<CountsOfGroup>(); });
  for (const CountOfDevice& one : known) {
    if (one.device == device.id()) return one.count;
  }
  const std::uint32_t zero = 0;
  TANDEM_ASSIGN(Buffer word, device.allocate(sizeof(zero)));
  TANDEM_TRY(
      device.copy_from_host(&zero, TensorView::contiguous(word.data(), {1}, DType::kU32, device.id())));
  known.push_back({device.id(), std::make_shared<BlockCount>(std::move(word))});
  return known.back().count;
}

}  // namespace

Result<GridBarrier> grid_barrier_of(const EndBarrier& end, tandem::cuda::CudaStream& stream) {
  if (end.workspace.world_size() == 1) return GridBarrier();
  TANDEM_ASSIGN(const std::shared_ptr<BlockCount> count, count_of(end.group, stream.device()));
  TANDEM_TRY(end.workspace.watch(stream));
  stream.add_watch(count);
  return GridBarrier{
      .ranks = end.workspace.kernel_handle(), .channel = end.channel, .num_done = count->word()};
}

}  // namespace tandem::coll::cuda
