#include <tandem/symm/kernel.hpp>

#include "base/format.hpp"
#include "symm/cpu/signals.hpp"

// The host's form of the functions that a kernel calls: the caller is a task on a stream's thread.

namespace tandem::symm {
namespace {

const Peers& peers_of(const KernelHandle& handle) {
  return *static_cast<const Peers*>(handle.control);
}

// A kernel returns false and no more, so the group has to hold the reason. A wait that timed out has poisoned
// it already; the first cause wins.
bool succeeded(const KernelHandle& handle, int peer, const Result<void>& result) {
  if (!result) peers_of(handle).control->poison(result.error(), peer);
  return result.has_value();
}

Result<void> check(const KernelHandle& handle, const char* who, int peer, int channel) {
  if (peer >= 0 && peer < handle.world_size && channel >= 0 && channel < handle.num_channels &&
      handle.timeout_ns > 0) {
    return {};
  }
  return failf(ErrorCode::kInvalidArgument,
               "{} in a kernel on rank {}: peer {} (need 0 to {}), channel {} (need 0 to {}), timeout {} ns "
               "(need > 0)",
               who, handle.rank, peer, handle.world_size - 1, channel, handle.num_channels - 1,
               handle.timeout_ns);
}

cpu::Signal signal_of(const KernelHandle& handle, const char* who, int peer, int channel) {
  return {who, peer, channel, Deadline::after(std::chrono::nanoseconds(handle.timeout_ns))};
}

std::memory_order order_of(PutOrder order) {
  return order == PutOrder::kRelease ? std::memory_order_release : std::memory_order_relaxed;
}

std::memory_order order_of(WaitOrder order) {
  return order == WaitOrder::kAcquire ? std::memory_order_acquire : std::memory_order_relaxed;
}

}  // namespace

bool put_signal(const KernelHandle& handle, int dst, int channel, PutOrder order) {
  if (const auto legal = check(handle, "put_signal", dst, channel); !legal)
    return succeeded(handle, handle.rank, legal);
  return succeeded(
      handle, dst,
      cpu::put(peers_of(handle), signal_of(handle, "put_signal", dst, channel), order_of(order)));
}

bool wait_signal(const KernelHandle& handle, int src, int channel, WaitOrder order) {
  if (const auto legal = check(handle, "wait_signal", src, channel); !legal)
    return succeeded(handle, handle.rank, legal);
  return succeeded(
      handle, src,
      cpu::take(peers_of(handle), signal_of(handle, "wait_signal", src, channel), order_of(order)));
}

bool sync_blocks(const KernelHandle& handle, int block, PutOrder put, WaitOrder wait) {
  if (const auto legal = check(handle, "sync_blocks", 0, block); !legal)
    return succeeded(handle, handle.rank, legal);
  return succeeded(handle, -1,
                   cpu::meet(peers_of(handle), signal_of(handle, "sync_blocks", -1, block), order_of(put),
                             order_of(wait)));
}

}  // namespace tandem::symm
