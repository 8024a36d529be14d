#include "support/symm_kernels.hpp"

#include <tandem/cpu/launch.hpp>
#include <tandem/device/device.hpp>

#include "support/symm_gpu_kernels.hpp"

namespace tandem::testing {
namespace {

using symm::KernelHandle;
using symm::PutOrder;
using symm::WaitOrder;

constexpr int kNumRounds = 30;

bool is_cpu(const Stream& stream) {
  return stream.device().id().kind == DeviceKind::kCpu;
}

/// `kernel` as a task; it returns false when it gave up.
template <class Kernel>
Result<void> launch_task(Stream& stream, Group& group, Kernel kernel) {
  return cpu::launch(stream, cpu::Task([kernel, &group]() -> Result<void> {
                       return kernel() ? Result<void>{} : group.status();
                     }));
}

bool meet_in_rounds(const KernelHandle& handle, std::uint32_t* num_wrong) {
  auto* const mine = static_cast<std::uint32_t*>(handle.buffers[handle.rank]);
  for (std::uint32_t round = 1; round <= kNumRounds; ++round) {
    *mine = round;
    if (!sync_blocks(handle, 9, PutOrder::kRelease, WaitOrder::kAcquire)) return false;
    for (int q = 0; q < handle.world_size; ++q) {
      if (*static_cast<const std::uint32_t*>(handle.buffers[q]) != round) ++*num_wrong;
    }
    if (!sync_blocks(handle, 10, PutOrder::kRelease, WaitOrder::kAcquire)) return false;
  }
  const int next = (handle.rank + 1) % handle.world_size;
  const int previous = (handle.rank + handle.world_size - 1) % handle.world_size;
  return put_signal(handle, next, 11) && wait_signal(handle, previous, 11);
}

}  // namespace

Result<void> launch_meeting_rounds(Stream& stream, Group& group, const KernelHandle& handle,
                                   std::uint32_t* num_wrong) {
  if (!is_cpu(stream)) return launch_meeting_rounds_on_gpu(stream, handle, kNumRounds, num_wrong);
  return launch_task(stream, group, [=] { return meet_in_rounds(handle, num_wrong); });
}

Result<void> launch_wait(Stream& stream, Group& group, const KernelHandle& handle, int src, int channel) {
  if (!is_cpu(stream)) return launch_wait_on_gpu(stream, handle, src, channel);
  return launch_task(stream, group, [=] { return wait_signal(handle, src, channel); });
}

Result<void> launch_sync_blocks(Stream& stream, Group& group, const KernelHandle& handle, int block) {
  if (!is_cpu(stream)) return launch_sync_blocks_on_gpu(stream, handle, block);
  return launch_task(stream, group,
                     [=] { return sync_blocks(handle, block, PutOrder::kRelease, WaitOrder::kAcquire); });
}

}  // namespace tandem::testing
