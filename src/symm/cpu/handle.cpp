#include "symm/cpu/handle.hpp"

#include <tandem/cpu/launch.hpp>

#include "base/try.hpp"
#include "device/cpu/copy_plan.hpp"
#include "symm/cpu/group_use.hpp"
#include "symm/cpu/link.hpp"
#include "symm/cpu/signals.hpp"

namespace tandem::symm::cpu {
namespace {

using tandem::cpu::launch;
using tandem::cpu::Task;

/// A copy from or to a peer. It holds what queued work needs: the handle may be gone.
struct PeerCopy {
  std::shared_ptr<Peers> peers;
  const char* point;  ///< of the fault plan
  int peer;
  void* target;
  bool is_empty;
  tandem::cpu::CopyPlan plan;

  PeerCopy(std::shared_ptr<Peers> of, const char* fault_point, int with, const TensorView& from,
           const TensorView& to)
      : peers(std::move(of)),
        point(fault_point),
        peer(with),
        target(to.data),
        is_empty(to.numel() == 0),
        plan(from, to) {}

  Result<void> operator()() const {
    const GroupUse use(*peers);
    TANDEM_TRY(use.check());
    const FaultAction fault = fault_at(*peers, point);
    if (peer != peers->rank) TANDEM_TRY(wait_for_link(*peers));
    if (is_empty) return {};
    plan.run();
    if (fault == FaultAction::kCorrupt) *static_cast<unsigned char*>(target) ^= 0x40U;
    return {};
  }
};

}  // namespace

Result<void> CpuHandle::do_put_signal(Stream& stream, int dst_rank, int channel, Timeout timeout) {
  return launch(
      stream, Task([peers = peers(), dst_rank, channel, limit = limit_of(timeout)]() -> Result<void> {
        const GroupUse use(*peers);
        TANDEM_TRY(use.check());
        const FaultAction fault = fault_at(*peers, "put");
        TANDEM_TRY(symm::cpu::put(*peers, {"put_signal", dst_rank, channel, Deadline::after(limit)}));
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
  return launch(stream, Task(PeerCopy(peers(), "get", peer, from, to)));
}

Result<void> CpuHandle::do_put(Stream& stream, const TensorView& from, const TensorView& to, int peer) {
  return launch(stream, Task(PeerCopy(peers(), "put", peer, from, to)));
}

}  // namespace tandem::symm::cpu
