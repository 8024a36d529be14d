#include "fused/op_memory.hpp"

#include <algorithm>
#include <atomic>

#include "base/try.hpp"
#include "coll/collective_call.hpp"

namespace tandem::fused {

std::uint64_t next_plan_id() {
  static std::atomic<std::uint64_t> last{0};
  return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

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

TensorView Carver::take(const Dims& sizes, DType dtype, DeviceId device) {
  constexpr std::int64_t kAlignment = 128;
  TensorView piece = TensorView::contiguous(nullptr, sizes, dtype, device);
  if (block_ != nullptr) piece.data = block_ + used_bytes_;
  used_bytes_ += (piece.size_bytes() + kAlignment - 1) / kAlignment * kAlignment;
  return piece;
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

NativeLine& native_line(Group& group, DeviceId device, std::uint32_t longest) {
  std::unique_ptr<NativeLine>& line = device_memory(group, device).native;
  if (!line) line = std::make_unique<NativeLine>(longest);
  return *line;
}

Result<void> open_side_stream(Group& group, Device& device) {
  std::unique_ptr<Stream>& side = device_memory(group, device.id()).side;
  if (side) return {};
  TANDEM_ASSIGN(side, device.create_stream());
  return {};
}

pipeline::StreamPair stream_pair(Group& group, Stream& current) {
  DeviceMemory& memory = device_memory(group, current.device().id());
  const RecordedCalls& recorded = memory.recorded;
  return {current, &current == recorded.stream.get() ? *recorded.side : *memory.side};
}

}  // namespace tandem::fused
