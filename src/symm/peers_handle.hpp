#pragma once

#include <chrono>
#include <memory>
#include <string_view>
#include <tandem/symm/handle.hpp>

#include "symm/service.hpp"

namespace tandem::symm {

/// What the handles of all backends have in common: they are views of one rendezvous.
class PeersHandle : public Handle {
 public:
  [[nodiscard]] int rank() const final { return peers_->rank; }
  [[nodiscard]] int world_size() const final { return peers_->world_size; }
  [[nodiscard]] Device& device() const final { return *peers_->device; }
  [[nodiscard]] bool is_of(const Group& group) const final {
    return peers_->group_alive.load(std::memory_order_acquire) && peers_->group == &group;
  }
  [[nodiscard]] std::int64_t buffer_size_bytes() const final { return peers_->buffer_bytes; }
  [[nodiscard]] std::int64_t signal_pad_size_bytes() const final { return peers_->pad_bytes; }
  [[nodiscard]] std::int64_t offset_bytes() const final { return offset_bytes_; }
  [[nodiscard]] std::span<void* const> buffer_ptrs() const final { return peers_->buffers; }
  [[nodiscard]] std::span<std::uint32_t* const> signal_pad_ptrs() const final { return peers_->pads; }
  [[nodiscard]] KernelHandle kernel_handle(Timeout timeout) const final;

 protected:
  PeersHandle(std::shared_ptr<Peers> peers, std::int64_t offset_bytes)
      : peers_(std::move(peers)), offset_bytes_(offset_bytes) {}

  [[nodiscard]] const std::shared_ptr<Peers>& peers() const { return peers_; }
  [[nodiscard]] std::chrono::milliseconds limit_of(Timeout timeout) const;
  /// KernelHandle::control.
  [[nodiscard]] virtual void* control() const = 0;

 private:
  Result<void> check_usable(const Stream& stream) const final;

  std::shared_ptr<Peers> peers_;
  std::int64_t offset_bytes_;
};

/// Passes a point of the fault plan of the peers' group.
FaultAction fault_at(const Peers& peers, std::string_view point);

}  // namespace tandem::symm
