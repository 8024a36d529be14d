#pragma once

// For communication kernels of your own: what a handle gives to a kernel, and the three things a kernel does
// with it. The names are the same in a CUDA kernel (tandem/symm/kernel_device.cuh) and in code launched on a
// CPU stream (tandem/cpu/launch.hpp), and so are the rules, so a kernel's signalling reads the same on both.
// It includes <cstdint> only, so that device code can include it.
// Examples: examples/one_shot_all_reduce.cpp, examples/cuda/all_reduce_kernel.cu.

#include <cstdint>

namespace tandem::symm {

/// Trivially copyable; pass it to a kernel by value. Valid as long as the handle and its group.
struct KernelHandle {
  int rank = 0;
  int world_size = 1;
  int num_channels = 0;
  void* const* buffers = nullptr;               ///< data by rank, from the start of the block
  std::uint32_t* const* signal_pads = nullptr;  ///< by rank
  std::int64_t timeout_ns = 0;                  ///< longest wait of one call
  void* control = nullptr;                      ///< tandem's own: how its waits end and who hears of it
};

/// Whether a put publishes this thread's earlier writes.
enum class PutOrder : std::uint8_t { kRelaxed, kRelease };
/// Whether a wait makes the sender's writes visible.
enum class WaitOrder : std::uint8_t { kRelaxed, kAcquire };

// Each returns false when the wait gave up (deadline, lost peer, poisoned group) or an argument is out of
// range. The group is poisoned then, on every rank, with the reason: return from the kernel. A task on a CPU
// stream returns Group::status(), or an Error of its own, so that Stream::synchronize() returns it; on a
// GPU's stream Handle::watch() sees to that.
// These are the CPU's; nvcc knows no two functions that differ in where they run only.
#if !defined(__CUDACC__) && !defined(TANDEM_SIMULATED_GPU)

/// Signals `dst` on `channel`. Waits first until the last signal on this channel was consumed.
[[nodiscard]] bool put_signal(const KernelHandle& handle, int dst, int channel,
                              PutOrder order = PutOrder::kRelease);
/// Waits for the signal of `src` on `channel` and consumes it.
[[nodiscard]] bool wait_signal(const KernelHandle& handle, int src, int channel,
                               WaitOrder order = WaitOrder::kAcquire);
/// Block `block` of every rank meets: put to all, wait for all, on channel `block`. (kRelaxed, kAcquire) at a
/// kernel's start, (kRelease, kAcquire) in the middle, (kRelease, kRelaxed) at its end. Blocks that meet must
/// run at the same time on all ranks; `block` is below `num_channels`. On the CPU a task is one block.
[[nodiscard]] bool sync_blocks(const KernelHandle& handle, int block, PutOrder put, WaitOrder wait);

#endif

}  // namespace tandem::symm
