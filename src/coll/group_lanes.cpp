#include "coll/group_lanes.hpp"

#include <cstddef>
#include <memory>
#include <vector>

#include "base/try.hpp"

namespace tandem::coll {
namespace {

using Lanes = std::vector<std::unique_ptr<Stream>>;

struct DeviceLanes {
  explicit DeviceLanes(DeviceId of) : id(of) {}
  /// A fault that is left in a side lane is the group's, which has told it.
  ~DeviceLanes() {
    for (const auto& lane : side) static_cast<void>(lane->synchronize());
    if (urgent) static_cast<void>(urgent->synchronize());
  }
  DeviceLanes(const DeviceLanes&) = delete;
  DeviceLanes& operator=(const DeviceLanes&) = delete;

  DeviceId id;
  Lanes side;  ///< lanes 1, 2, ...
  Lanes recording;
  std::unique_ptr<Stream> urgent;
  const Device* recorded_device = nullptr;  ///< of `recording`; compared only
};

DeviceLanes& lanes_of(Group& group, DeviceId device) {
  using All = std::vector<std::unique_ptr<DeviceLanes>>;
  auto& all = group.extension<All>("coll.lanes", [] { return std::make_shared<All>(); });
  for (const auto& lanes : all) {
    if (lanes->id == device) return *lanes;
  }
  return *all.emplace_back(std::make_unique<DeviceLanes>(device));
}

Result<void> add_streams(Lanes& lanes, int count, Device& device) {
  while (static_cast<int>(lanes.size()) < count) {
    TANDEM_ASSIGN(auto lane, device.create_stream());
    lanes.push_back(std::move(lane));
  }
  return {};
}

}  // namespace

Result<void> open_lanes(int num_lanes, Group& group, Device& device) {
  return add_streams(lanes_of(group, device.id()).side, num_lanes - 1, device);
}

Result<Stream*> open_recording_lanes(int num_lanes, Group& group, Device& device) {
  DeviceLanes& lanes = lanes_of(group, device.id());
  if (lanes.recorded_device != &device) lanes.recording.clear();
  lanes.recorded_device = &device;
  TANDEM_TRY(add_streams(lanes.recording, num_lanes, device));
  return lanes.recording.front().get();
}

Result<Stream*> urgent_lane(Group& group, Device& device) {
  constexpr int kMostUrgent = -100;  // a device takes its own most urgent priority
  std::unique_ptr<Stream>& lane = lanes_of(group, device.id()).urgent;
  if (!lane) {
    TANDEM_ASSIGN(lane, device.create_stream(kMostUrgent));
  }
  return lane.get();
}

Stream& side_lane(int lane, Group& group, const Stream& current) {
  const DeviceLanes& lanes = lanes_of(group, current.device().id());
  const auto idx = static_cast<std::size_t>(lane);
  const bool is_recording = !lanes.recording.empty() && lanes.recording.front().get() == &current;
  return is_recording ? *lanes.recording[idx] : *lanes.side[idx - 1];
}

}  // namespace tandem::coll
