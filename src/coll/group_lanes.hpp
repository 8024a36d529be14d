#pragma once

#include <tandem/base/error.hpp>
#include <tandem/bootstrap/group.hpp>
#include <tandem/device/device.hpp>
#include <tandem/device/stream.hpp>

namespace tandem::coll {

// The streams that a group's ops use beside the caller's, one set a device. Ops of a group run one after the
// other, so all share them.

/// Makes the streams that programs of so many lanes use beside the caller's, where they are missing.
[[nodiscard]] Result<void> open_lanes(int num_lanes, Group& group, Device& device);
/// As many lanes to record on, where no op runs; the first in place of the caller's.
[[nodiscard]] Result<Stream*> open_recording_lanes(int num_lanes, Group& group, Device& device);
/// Lane `lane` > 0 of an op whose lane 0 is `current`: the group's own, or recording ones.
[[nodiscard]] Stream& side_lane(int lane, Group& group, const Stream& current);
/// One more, of which a device takes work before that of its other streams: its small kernels start as soon
/// as a multiprocessor comes free.
[[nodiscard]] Result<Stream*> urgent_lane(Group& group, Device& device);

}  // namespace tandem::coll
