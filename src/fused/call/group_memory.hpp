#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <tandem/base/error.hpp>
#include <tandem/bootstrap/group.hpp>
#include <tandem/device/device.hpp>
#include <vector>

#include "fused/call/graph_cache.hpp"
#include "symm/inbox.hpp"
#include "symm/kernel_inbox.hpp"

namespace tandem::fused {

/// Scratch memory of a group's ops on one device. Ops of a group run one after the other, so all share it. It
/// grows and never shrinks; an outgrown block stays, because ops that are still queued use it.
class Scratch {
 public:
  [[nodiscard]] Result<void> reserve(std::int64_t num_bytes, Group& group, Device& device);
  [[nodiscard]] std::byte* data() const;

 private:
  std::vector<Buffer> blocks_;
};

/// Calls that may come again.
struct RecordedCalls {
  const Device* device = nullptr;  ///< compared only
  GraphCache graphs = {};
};

/// What a group keeps for the fused ops on one device.
struct DeviceMemory {
  explicit DeviceMemory(DeviceId of) : device(of) {}

  DeviceId device;
  Scratch scratch;
  std::unique_ptr<symm::Inbox> inbox;  ///< see inbox_of()
  symm::KernelInbox kernel_inbox;      ///< of products whose rows go to their owners
  RecordedCalls recorded;
};
/// Made at first use. The fused ops share it.
[[nodiscard]] DeviceMemory& device_memory(Group& group, DeviceId device);

/// The inbox of the group's native gathers on a device, made at first use. `longest`: how many ops a block of
/// it serves.
[[nodiscard]] symm::Inbox& inbox_of(Group& group, DeviceId device,
                                    std::uint32_t longest = symm::Inbox::kLongest);

}  // namespace tandem::fused
