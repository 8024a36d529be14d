#include "coll/cuda/meeting.hpp"

#include <memory>
#include <tandem/device/device.hpp>
#include <utility>
#include <vector>

#include "base/try.hpp"

namespace tandem::coll::cuda {
namespace {

struct OfDevice {
  DeviceId device;
  Buffer num_done;
};
using OfGroup = std::vector<OfDevice>;

Result<std::uint32_t*> num_done_of(Group& group, Device& device) {
  auto& known = group.extension<OfGroup>("coll.meeting", [] { return std::make_shared<OfGroup>(); });
  for (const OfDevice& one : known) {
    if (one.device == device.id()) return static_cast<std::uint32_t*>(one.num_done.data());
  }
  const std::uint32_t zero = 0;
  TANDEM_ASSIGN(Buffer num_done, device.allocate(sizeof(zero)));
  TANDEM_TRY(
      device.copy_from_host(&zero, TensorView::contiguous(num_done.data(), {1}, DType::kU32, device.id())));
  known.push_back({device.id(), std::move(num_done)});
  return static_cast<std::uint32_t*>(known.back().num_done.data());
}

}  // namespace

Result<Meeting> meeting_of(const RanksMeet& meet, Stream& stream) {
  if (meet.workspace.world_size() == 1) return Meeting();
  TANDEM_ASSIGN(std::uint32_t* const num_done, num_done_of(meet.group, stream.device()));
  TANDEM_TRY(meet.workspace.watch(stream));
  return Meeting{.ranks = meet.workspace.kernel_handle(), .channel = meet.channel, .num_done = num_done};
}

}  // namespace tandem::coll::cuda
