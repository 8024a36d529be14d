#pragma once

// For your own communication kernels: what a handle gives to a kernel, and the three calls that a kernel
// makes with it. Names and rules are the same in a CUDA kernel (tandem/symm/kernel_device.cuh) and in code on
// a CPU stream (tandem/cpu/launch.hpp). This header includes <cstdint> only, so that device code can include
// it.
// Examples: examples/one_shot_all_reduce.cpp, examples/cuda/all_reduce_kernel.cu.

#include <cstdint>

namespace tandem::symm {

/// What a kernel needs of a Handle. It is trivially copyable: pass it to a kernel by value. It is valid as
/// long as the handle and its group.
struct KernelHandle {
  int rank = 0;
  int world_size = 1;
  int num_channels = 0;
  void* const* buffers = nullptr;               ///< data by rank, from the start of the block
  std::uint32_t* const* signal_pads = nullptr;  ///< by rank
  std::int64_t timeout_ns = 0;                  ///< longest wait of one call
  void* control = nullptr;                      ///< the library's: how waits end, and who gets the error
};

/// Whether a put publishes this thread's earlier writes.
enum class PutOrder : std::uint8_t { kRelaxed, kRelease };
/// Whether a wait makes the sender's writes visible.
enum class WaitOrder : std::uint8_t { kRelaxed, kAcquire };

// Each call returns false if its wait gave up (deadline, lost peer, poisoned group) or an argument is out of
// range. The group is then poisoned on every rank, with the reason. Return from the kernel. On a CPU stream,
// the task returns Group::status(), or its own Error, and Stream::synchronize() returns that. On a GPU's
// stream, Handle::watch() does this.
// These functions are the CPU's: nvcc does not overload functions by where they run.
#if !defined(__CUDACC__) && !defined(TANDEM_SIMULATED_GPU)

/// Signals `dst` on `channel`. It first waits until the last signal on this channel was taken.
[[nodiscard]] bool put_signal(const KernelHandle& handle, int dst, int channel,
                              PutOrder order = PutOrder::kRelease);
/// Waits for the signal of `src` on `channel` and takes it.
[[nodiscard]] bool wait_signal(const KernelHandle& handle, int src, int channel,
                               WaitOrder order = WaitOrder::kAcquire);
/// A barrier of the blocks `block` of all ranks, on channel `block`: it signals all ranks and waits for all.
/// Use (kRelaxed, kAcquire) at a kernel's start, (kRelease, kAcquire) in the middle and (kRelease, kRelaxed)
/// at its end. The blocks must run at the same time on all ranks. `block` must be below `num_channels`. On
/// the CPU a task is one block.
[[nodiscard]] bool sync_blocks(const KernelHandle& handle, int block, PutOrder put, WaitOrder wait);

#endif

}  // namespace tandem::symm
