#pragma once

#include <cuda_runtime_api.h>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <tandem/base/deadline.hpp>
#include <tandem/base/error.hpp>

#include "device/cuda/cuda_error.hpp"
#include "device/cuda/host_wait.hpp"
#include "device/cuda/sleep_kernel.hpp"
#include "device/cuda/strided_copy.hpp"
#include "device/cuda/watch_list.hpp"

namespace tandem::cuda {

/// Whom enqueued work may wait for while it runs.
enum class Waits : std::uint8_t { kForNobody, kForPeers };

/// One GPU of this process, and what its Device objects need of each other where there are several, as where
/// ranks are threads: see Loopback in docs/design/cuda.md. Where there is one, all of this is nothing. A
/// service of the device. Every function may be called from any thread.
class SharedGpu {
 public:
  SharedGpu() = default;
  SharedGpu(const SharedGpu&) = delete;
  SharedGpu& operator=(const SharedGpu&) = delete;

  void count_device() { num_devices_.fetch_add(1, std::memory_order_relaxed); }
  void forget_device() { num_devices_.fetch_sub(1, std::memory_order_relaxed); }
  [[nodiscard]] int num_devices() const { return num_devices_.load(std::memory_order_relaxed); }
  [[nodiscard]] bool is_shared() const { return num_devices() > 1; }

  /// Has `enqueue()` enqueue on `stream`, and returns what it does. Ops are made of ops, so calls may be
  /// nested.
  ///
  /// Streams have no hardware queues of their own: an idle one gets any that looks empty, and so does one
  /// whose kernel runs with nothing behind it. If that kernel waits for a signal, a second stream that is put
  /// there and then something behind the first kernel end up stuck behind it, the sender of the signal
  /// perhaps among them (measured: docs/design/cuda.md). So where ranks share a GPU they enqueue in turn, and
  /// what waits for peers gets an empty kernel behind it in the same turn.
  template <class Enqueue>
  [[nodiscard]] Result<void> in_turn(Waits waits, cudaStream_t stream, Enqueue enqueue) {
    const Turn turn = take_turn();
    Result<void> done = enqueue();
    if (waits == Waits::kForNobody || !is_shared()) return done;
    const Result<void> kept = keep_queue(stream);
    return done ? kept : done;
  }
  /// For the library's own stream, on which one host thread at a time works, shared GPU or not.
  [[nodiscard]] std::unique_lock<std::recursive_mutex> exclude_others() { return std::unique_lock(mutex_); }

  /// Before kernels are loaded, and not in a turn. Loading may wait for whatever runs on the GPU, and keep
  /// other threads from enqueuing meanwhile; a kernel of `stream` may wait for what another rank has yet to
  /// enqueue. So this waits until `stream` is done, or the deadline has passed. What came before tells its
  /// faults by itself.
  void settle_before_load(cudaStream_t stream, const WatchList& watches, Deadline deadline, Spin spin) const {
    if (is_shared()) static_cast<void>(wait_until_done(stream, watches, deadline, spin));
  }

  /// A copy engine takes copies one after the other. One that waits in it for its stream's kernel, which
  /// waits for a peer, would stand before the copy that this peer needs first.
  [[nodiscard]] CopyBy copy_by() const { return is_shared() ? CopyBy::kKernel : CopyBy::kEngine; }

  /// Device::max_queued_ops(): a host that fills the driver's queue waits in the driver, in its turn, and the
  /// others cannot enqueue what its kernels wait for.
  [[nodiscard]] int max_queued_ops() const { return is_shared() ? 2 : 16; }

 private:
  using Turn = std::unique_lock<std::recursive_mutex>;
  [[nodiscard]] Turn take_turn() { return is_shared() ? Turn(mutex_) : Turn(); }
  [[nodiscard]] static Result<void> keep_queue(cudaStream_t stream) {
    return check_cuda("keep_queue", launch_sleep(0, stream));
  }

  std::atomic<int> num_devices_{0};
  std::recursive_mutex mutex_;
};

}  // namespace tandem::cuda
