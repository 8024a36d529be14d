#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <tandem/base/error.hpp>
#include <tandem/base/tensor.hpp>
#include <tandem/bootstrap/group.hpp>
#include <tandem/device/device.hpp>
#include <tandem/device/stream.hpp>
#include <tandem/symm/handle.hpp>

#include "symm/service.hpp"

namespace tandem::symm {

/// What memory that is too small is replaced by: at least twice as much, so that growths stay few.
[[nodiscard]] constexpr std::int64_t grown(std::int64_t has, std::int64_t needs) {
  return needs <= has ? has : std::max(needs, 2 * has);
}

/// Symmetric memory that a group's ops work in, made while the group runs. On a CPU its addresses, those of
/// the other ranks' memory too, are known before the ranks have met, and they meet in their streams: no host
/// waits for another one's, which may be at an op of another group. On a GPU the hosts meet in a rendezvous.
class PlacedMemory {
 public:
  /// This rank's bytes, zeroed. Local. The group's ranks make the same sizes in the same order.
  /// Errors: those of symm::empty(). Nobody else knows of it then.
  [[nodiscard]] static Result<PlacedMemory> make(Group& group, Device& device, std::int64_t num_bytes);

  /// The memory of all ranks, for what is enqueued on `stream` from here on. An error is the group's, or one
  /// that symm::rendezvous() returns.
  [[nodiscard]] Result<std::shared_ptr<Handle>> connect(Group& group, Stream& stream) const;

  /// Owner of the bytes.
  [[nodiscard]] Tensor take_tensor() && { return std::move(tensor_); }

 private:
  PlacedMemory(Tensor tensor, std::shared_ptr<Peers> peers)
      : tensor_(std::move(tensor)), peers_(std::move(peers)) {}
  Tensor tensor_;
  std::shared_ptr<Peers> peers_;  // null where the hosts meet
};

/// Whether work on `device` needs no meeting of hosts: neither for memory nor for a problem that is new.
[[nodiscard]] Result<bool> can_place(const Device& device);

/// Blocks the host until the work of connect() has run: for a handle that somebody else may have connected on
/// some stream. Errors: the group's; kTimeout.
[[nodiscard]] Result<void> await_connected(Group& group, const Peers& peers);

}  // namespace tandem::symm
