#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <tandem/bootstrap/group.hpp>
#include <tandem/symm/handle.hpp>
#include <vector>

#include "symm/anchor.hpp"
#include "symm/service.hpp"

namespace tandem::symm {

/// A group's handles by address, its workspaces and its pad size; lives in the group. Holds nothing alive but
/// the workspaces: an expired entry is dropped at the next rendezvous or growth, and never found (a live
/// handle keeps its block, so an address with a live entry cannot have been recycled).
class HandleTable {
 public:
  explicit HandleTable(int world_size);
  /// Ends the group's handles: those that users still hold keep their memory but refuse signals.
  ~HandleTable();
  HandleTable(const HandleTable&) = delete;
  HandleTable& operator=(const HandleTable&) = delete;

  [[nodiscard]] static HandleTable& of(Group& group);

  /// The handle with exactly this start, null if there is none.
  [[nodiscard]] std::shared_ptr<Handle> find_exact(const Block& block, std::int64_t offset_bytes) const;
  /// What a block's earlier handles share, null if there are none.
  [[nodiscard]] std::shared_ptr<Peers> find_peers(const Block& block) const;
  /// The handle that starts last before `address`, in the block that holds [address, last).
  [[nodiscard]] std::shared_ptr<Handle> find_covering(const void* address, const void* last,
                                                      DeviceId device) const;

  void insert(const std::shared_ptr<Anchor>& anchor, const std::shared_ptr<Peers>& peers,
              const std::shared_ptr<Handle>& handle);
  /// Entries, expired ones included.
  [[nodiscard]] std::int64_t size() const { return static_cast<std::int64_t>(entries_.size()); }

  [[nodiscard]] std::uint64_t next_number() { return num_exchanges_++; }
  /// How many placed memories the group has had (placed_memory.hpp).
  [[nodiscard]] std::uint64_t num_placed() const { return num_placed_; }
  void count_placed() { ++num_placed_; }
  [[nodiscard]] std::int64_t pad_bytes() const { return pad_bytes_; }
  void set_pad_bytes(std::int64_t num_bytes) { pad_bytes_ = num_bytes; }

  struct Workspace {
    Device* device = nullptr;
    Tensor tensor;
    std::shared_ptr<Handle> handle;
  };
  [[nodiscard]] Workspace* find_workspace(const Device& device);
  /// Keeps the device's earlier workspace: queued work may still use it. Sizes grow geometrically, so all
  /// earlier ones together are no larger than the last.
  void replace_workspace(Workspace workspace);

  /// See reporter.hpp; null if there is none.
  [[nodiscard]] std::shared_ptr<Handle> find_reporter(const Device& device) const;
  void insert_reporter(const std::shared_ptr<Peers>& peers, const std::shared_ptr<Handle>& handle);

 private:
  struct Entry {
    std::weak_ptr<Anchor> anchor;
    std::weak_ptr<Peers> peers;
    std::weak_ptr<Handle> handle;
    std::uint64_t cookie = 0;
    std::uintptr_t block_end = 0;
    DeviceId device;
  };
  void drop_expired();

  std::multimap<std::uintptr_t, Entry> entries_;  // by the handle's start
  std::vector<Workspace> workspaces_;
  std::vector<Workspace> retired_workspaces_;
  struct Reporter {
    std::shared_ptr<Peers> peers;
    std::shared_ptr<Handle> handle;
  };
  std::vector<Reporter> reporters_;
  std::uint64_t num_exchanges_ = 0;
  std::uint64_t num_placed_ = 0;
  std::int64_t pad_bytes_ = 0;
};

}  // namespace tandem::symm
