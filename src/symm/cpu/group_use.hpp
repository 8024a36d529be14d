#pragma once

#include <mutex>
#include <shared_mutex>
#include <tandem/base/error.hpp>

#include "symm/service.hpp"

namespace tandem::symm::cpu {

/// Keeps the group from ending while a task of a stream uses it.
class GroupUse {
 public:
  explicit GroupUse(Peers& peers) : lock_(peers.group_use), peers_(peers) {}
  /// Errors: kInvalidArgument if the group ended while the task was in the queue.
  [[nodiscard]] Result<void> check() const {
    if (peers_.group_alive.load(std::memory_order_acquire)) return {};
    return fail(ErrorCode::kInvalidArgument,
                "the handle's group was destroyed while its work was in a queue");
  }

 private:
  std::shared_lock<std::shared_mutex> lock_;
  const Peers& peers_;
};

}  // namespace tandem::symm::cpu
