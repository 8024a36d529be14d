#include "symm/handle_table.hpp"

#include <algorithm>
#include <mutex>

namespace tandem::symm {
namespace {

std::uintptr_t start_of(const Block& block, std::int64_t offset_bytes) {
  return reinterpret_cast<std::uintptr_t>(block.data()) + static_cast<std::uintptr_t>(offset_bytes);
}

// 16 channels for any world size; 9216 bytes are 32 channels for 72 ranks.
std::int64_t default_pad_bytes(int world_size) {
  return std::max<std::int64_t>(9216, std::int64_t{16} * 4 * world_size);
}

void end_group_of(Peers& peers) {
  if (peers.group_alive.load(std::memory_order_relaxed)) peers.see_group_end();  // once, of all offsets
  peers.group_alive.store(false, std::memory_order_release);
  const std::lock_guard in_use(peers.group_use);  // by a signal under way; every one has a deadline
}

}  // namespace

HandleTable::HandleTable(int world_size) : pad_bytes_(default_pad_bytes(world_size)) {}

HandleTable::~HandleTable() {
  for (auto& [start, entry] : entries_) {
    if (const auto peers = entry.peers.lock()) end_group_of(*peers);
    if (const auto anchor = entry.anchor.lock()) anchor->release(this);
  }
  for (const Reporter& reporter : reporters_) end_group_of(*reporter.peers);
}

HandleTable& HandleTable::of(Group& group) {
  const int world_size = group.size();
  return group.extension<HandleTable>([world_size] { return std::make_shared<HandleTable>(world_size); });
}

std::shared_ptr<Handle> HandleTable::find_exact(const Block& block, std::int64_t offset_bytes) const {
  const auto [first, last] = entries_.equal_range(start_of(block, offset_bytes));
  for (auto it = first; it != last; ++it) {
    if (it->second.cookie != block.cookie()) continue;
    if (auto handle = it->second.handle.lock()) return handle;
  }
  return nullptr;
}

std::shared_ptr<Peers> HandleTable::find_peers(const Block& block) const {
  const auto first = entries_.lower_bound(start_of(block, 0));
  const auto last = entries_.upper_bound(start_of(block, block.size_bytes()));
  for (auto it = first; it != last; ++it) {
    if (it->second.cookie != block.cookie()) continue;
    if (auto peers = it->second.peers.lock()) return peers;
  }
  return nullptr;
}

std::shared_ptr<Handle> HandleTable::find_covering(const void* address, const void* last,
                                                   DeviceId device) const {
  const auto begin = reinterpret_cast<std::uintptr_t>(address);
  const auto end = reinterpret_cast<std::uintptr_t>(last);
  for (auto it = entries_.upper_bound(begin); it != entries_.begin();) {
    --it;
    auto handle = it->second.handle.lock();
    if (!handle || !(it->second.device == device)) continue;
    // Live blocks do not overlap: the nearest live one below covers the range, or none does.
    return end <= it->second.block_end ? handle : nullptr;
  }
  return nullptr;
}

void HandleTable::insert(const std::shared_ptr<Anchor>& anchor, const std::shared_ptr<Peers>& peers,
                         const std::shared_ptr<Handle>& handle) {
  drop_expired();
  anchor->keep(this, handle);
  const Block& block = *anchor->block();
  entries_.emplace(
      start_of(block, handle->offset_bytes()),
      Entry{anchor, peers, handle, block.cookie(), start_of(block, block.size_bytes()), block.device().id()});
}

void HandleTable::drop_expired() {
  // Not those whose handle alone is gone: queued work may still hold the peers, which must hear of the
  // group's end.
  std::erase_if(entries_, [](const auto& item) { return item.second.peers.expired(); });
}

HandleTable::Workspace* HandleTable::find_workspace(const Device& device) {
  for (Workspace& workspace : workspaces_) {
    if (workspace.device == &device) return &workspace;
  }
  return nullptr;
}

void HandleTable::replace_workspace(Workspace workspace) {
  Workspace* old = find_workspace(*workspace.device);
  if (old == nullptr) {
    workspaces_.push_back(std::move(workspace));
    return;
  }
  retired_workspaces_.push_back(std::move(*old));
  *old = std::move(workspace);
}

std::shared_ptr<Handle> HandleTable::find_reporter(const Device& device) const {
  for (const Reporter& reporter : reporters_) {
    if (reporter.peers->device == &device) return reporter.handle;
  }
  return nullptr;
}

void HandleTable::insert_reporter(const std::shared_ptr<Peers>& peers,
                                  const std::shared_ptr<Handle>& handle) {
  reporters_.push_back({peers, handle});
}

}  // namespace tandem::symm
