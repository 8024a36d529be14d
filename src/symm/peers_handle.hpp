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

  // See get_view() and put_view().
  [[nodiscard]] Result<void> get_from(Stream& stream, const TensorView& from, const TensorView& to, int peer);
  [[nodiscard]] Result<void> put_to(Stream& stream, const TensorView& from, const TensorView& to, int peer);
  [[nodiscard]] Result<void> meet_aside(Stream& stream, int channel, int turn);  ///< see barrier_aside()
  /// Whether barrier_aside() takes no multiprocessor of a GPU.
  [[nodiscard]] virtual bool meets_on_stream() const { return false; }

 protected:
  PeersHandle(std::shared_ptr<Peers> peers, std::int64_t offset_bytes)
      : peers_(std::move(peers)), offset_bytes_(offset_bytes) {}

  [[nodiscard]] const std::shared_ptr<Peers>& peers() const { return peers_; }
  [[nodiscard]] std::chrono::milliseconds limit_of(Timeout timeout) const;
  /// By default do_barrier().
  virtual Result<void> do_barrier_aside(Stream& stream, int channel, int turn);
  /// KernelHandle::control.
  [[nodiscard]] virtual void* control() const = 0;

 private:
  Result<void> check_process() const final { return peers_->home.check("the handle of symmetric memory"); }
  Result<void> check_usable(const Stream& stream) const final;

  std::shared_ptr<Peers> peers_;
  std::int64_t offset_bytes_;
};

// Handle::get() and Handle::put() of views of equal sizes and types, with any strides that the device's
// copies take, and not empty. The peer's view lies in its block, as get_buffer() gives it.
[[nodiscard]] Result<void> get_view(Handle& handle, Stream& stream, const TensorView& from,
                                    const TensorView& to, int peer);
[[nodiscard]] Result<void> put_view(Handle& handle, Stream& stream, const TensorView& from,
                                    const TensorView& to, int peer);

/// Handle::barrier() that takes no multiprocessor, where every rank has a GPU to itself; else on `channel`.
/// The group's barriers of this kind take the turns 0 and 1 alternately, in their order; every op has an even
/// number of them.
[[nodiscard]] Result<void> barrier_aside(Handle& handle, Stream& stream, int channel, int turn);

/// Whether its barriers take none. The same on every rank, once the ranks have met.
[[nodiscard]] bool meets_on_stream(const Handle& handle);

/// Passes a point of the fault plan of the peers' group.
FaultAction fault_at(const Peers& peers, std::string_view point);

}  // namespace tandem::symm
