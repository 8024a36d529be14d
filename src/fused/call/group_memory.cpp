#include "fused/call/group_memory.hpp"

#include <algorithm>

#include "base/try.hpp"
#include "coll/collective_call.hpp"

namespace tandem::fused {

Result<void> Scratch::reserve(std::int64_t num_bytes, Group& group, Device& device) {
  const std::int64_t has_bytes = blocks_.empty() ? 0 : blocks_.back().size_bytes();
  if (num_bytes <= has_bytes) return {};
  // At least twice as much as before: all outgrown blocks together stay smaller than the one in use.
  TANDEM_ASSIGN(Buffer block, device.allocate(std::max(num_bytes, 2 * has_bytes)));
  coll::keep_for_ops(group, block.owner());
  blocks_.push_back(std::move(block));
  return {};
}

std::byte* Scratch::data() const {
  return blocks_.empty() ? nullptr : static_cast<std::byte*>(blocks_.back().data());
}

DeviceMemory& device_memory(Group& group, DeviceId device) {
  using Memories = std::vector<std::unique_ptr<DeviceMemory>>;
  auto& memories = group.extension<Memories>("fused.memory", [] { return std::make_shared<Memories>(); });
  for (const auto& memory : memories) {
    if (memory->device == device) return *memory;
  }
  memories.push_back(std::make_unique<DeviceMemory>(device));
  return *memories.back();
}

symm::Inbox& inbox_of(Group& group, DeviceId device, std::uint32_t longest) {
  std::unique_ptr<symm::Inbox>& inbox = device_memory(group, device).inbox;
  if (!inbox) inbox = std::make_unique<symm::Inbox>(longest);
  return *inbox;
}

}  // namespace tandem::fused
