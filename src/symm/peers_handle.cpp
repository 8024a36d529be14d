#include "symm/peers_handle.hpp"

#include "base/format.hpp"
#include "base/try.hpp"

namespace tandem::symm {

std::chrono::milliseconds PeersHandle::limit_of(Timeout timeout) const {
  return timeout.value_or(peers_->group->config().op_timeout);
}

Result<void> PeersHandle::check_usable(const Stream& stream) const {
  TANDEM_TRY(peers_->home.check("the handle of symmetric memory"));
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

FaultAction fault_at(const Peers& peers, std::string_view point) {
  return peers.group->faults().hit(point, peers.rank);
}

}  // namespace tandem::symm
