#include "symm/peers_handle.hpp"

#include "base/format.hpp"
#include "base/try.hpp"

namespace tandem::symm {

std::chrono::milliseconds PeersHandle::limit_of(Timeout timeout) const {
  return timeout.value_or(peers_->group->config().op_timeout);
}

Result<void> PeersHandle::check_usable(const Stream& stream) const {
  TANDEM_TRY(check_process());
  if (!peers_->group_alive.load(std::memory_order_acquire)) {
    return failf(ErrorCode::kInvalidArgument,
                 "the handle's group has been destroyed: only its memory is left");
  }
  if (&stream.device() != &device()) {
    return failf(ErrorCode::kInvalidArgument, "the stream belongs to {} ({}), the handle to {} ({})",
                 to_string(stream.device().id()), static_cast<const void*>(&stream.device()),
                 to_string(device().id()), static_cast<const void*>(&device()));
  }
  return peers_->group->status();
}

KernelHandle PeersHandle::kernel_handle(Timeout timeout) const {
  KernelHandle kernel;
  kernel.rank = rank();
  kernel.world_size = world_size();
  kernel.num_channels = num_channels();
  kernel.buffers = buffer_ptrs_dev();
  kernel.signal_pads = signal_pad_ptrs_dev();
  if (peers_->group_alive.load(std::memory_order_acquire)) {
    kernel.timeout_ns = std::chrono::nanoseconds(limit_of(timeout)).count();
  }
  kernel.control = control();
  return kernel;
}

Result<void> PeersHandle::get_from(Stream& stream, const TensorView& from, const TensorView& to, int peer) {
  TANDEM_TRY(check_usable(stream));
  return do_get(stream, from, to, peer);
}

Result<void> PeersHandle::put_to(Stream& stream, const TensorView& from, const TensorView& to, int peer) {
  TANDEM_TRY(check_usable(stream));
  return do_put(stream, from, to, peer);
}

Result<void> PeersHandle::meet_aside(Stream& stream, int channel, int turn) {
  TANDEM_TRY(check_usable(stream));
  return do_barrier_aside(stream, channel, turn);
}

Result<void> PeersHandle::do_barrier_aside(Stream& stream, int channel, int /*turn*/) {
  return do_barrier(stream, channel, {});
}

Result<void> barrier_aside(Handle& handle, Stream& stream, int channel, int turn) {
  return static_cast<PeersHandle&>(handle).meet_aside(stream, channel, turn);
}

bool meets_on_stream(const Handle& handle) {
  return static_cast<const PeersHandle&>(handle).meets_on_stream();
}

Result<void> get_view(Handle& handle, Stream& stream, const TensorView& from, const TensorView& to,
                      int peer) {
  return static_cast<PeersHandle&>(handle).get_from(stream, from, to, peer);  // all handles are
}

Result<void> put_view(Handle& handle, Stream& stream, const TensorView& from, const TensorView& to,
                      int peer) {
  return static_cast<PeersHandle&>(handle).put_to(stream, from, to, peer);
}

FaultAction fault_at(const Peers& peers, std::string_view point) {
  return peers.group->faults().hit(point, peers.rank);
}

}  // namespace tandem::symm
