#include "symm/cpu/handle.hpp"

#include <algorithm>
#include <cstring>
#include <shared_mutex>
#include <tandem/cpu/launch.hpp>
#include <thread>

#include "base/format.hpp"
#include "base/try.hpp"
#include "symm/cpu/signals.hpp"

namespace tandem::symm::cpu {
namespace {

using std::chrono::milliseconds;
using tandem::cpu::launch;
using tandem::cpu::Task;

/// Keeps the group from ending while a task of a stream uses it.
class GroupUse {
 public:
  explicit GroupUse(Peers& peers) : lock_(peers.group_use), peers_(peers) {}
  /// Errors: kInvalidArgument if the group ended while the task was in the queue.
  [[nodiscard]] Result<void> check() const {
    if (peers_.group_alive.load(std::memory_order_acquire)) return {};
    return failf(ErrorCode::kInvalidArgument,
                 "the handle's group was destroyed while its work was in a queue");
  }

 private:
  std::shared_lock<std::shared_mutex> lock_;
  const Peers& peers_;
};

/// The simulated link: takes its time without a core, but not longer than the group is sound.
Result<void> wait_for_link(const Peers& peers) {
  const Deadline end = Deadline::after(peers.group->config().link_delay);
  constexpr std::chrono::nanoseconds kLook = milliseconds(10);
  while (!end.expired()) {
    TANDEM_TRY(peers.control->status());
    std::this_thread::sleep_for(std::min(end.remaining(), kLook));
  }
  return {};
}

}  // namespace

Result<void> CpuHandle::do_put_signal(Stream& stream, int dst_rank, int channel, Timeout timeout) {
  return launch(stream,
                Task([peers = peers(), dst_rank, channel, limit = limit_of(timeout)]() -> Result<void> {
                  const GroupUse use(*peers);
                  TANDEM_TRY(use.check());
                  const FaultAction fault = fault_at(*peers, "put");
                  TANDEM_TRY(put(*peers, {"put_signal", dst_rank, channel, Deadline::after(limit)}));
                  if (fault == FaultAction::kCorrupt) corrupt_signal(*peers, dst_rank, channel);
                  return {};
                }));
}

Result<void> CpuHandle::do_wait_signal(Stream& stream, int src_rank, int channel, Timeout timeout) {
  return launch(stream,
                Task([peers = peers(), src_rank, channel, limit = limit_of(timeout)]() -> Result<void> {
                  const GroupUse use(*peers);
                  TANDEM_TRY(use.check());
                  fault_at(*peers, "wait");
                  return take(*peers, {"wait_signal", src_rank, channel, Deadline::after(limit)});
                }));
}

Result<void> CpuHandle::do_barrier(Stream& stream, int channel, Timeout timeout) {
  return launch(stream, Task([peers = peers(), channel, limit = limit_of(timeout)]() -> Result<void> {
                  const GroupUse use(*peers);
                  TANDEM_TRY(use.check());
                  fault_at(*peers, "barrier");
                  return meet(*peers, {"barrier", -1, channel, Deadline::after(limit)});
                }));
}

Result<void> CpuHandle::do_get(Stream& stream, const TensorView& from, const TensorView& to, int peer) {
  const auto num_bytes = static_cast<std::size_t>(to.size_bytes());
  return launch(stream, Task([peers = peers(), peer, num_bytes, source = from.data,
                              target = to.data]() -> Result<void> {
                  const GroupUse use(*peers);
                  TANDEM_TRY(use.check());
                  const FaultAction fault = fault_at(*peers, "get");
                  if (peer != peers->rank) TANDEM_TRY(wait_for_link(*peers));
                  if (num_bytes > 0) std::memcpy(target, source, num_bytes);
                  if (fault == FaultAction::kCorrupt && num_bytes > 0)
                    *static_cast<unsigned char*>(target) ^= 0x40U;
                  return {};
                }));
}

}  // namespace tandem::symm::cpu
