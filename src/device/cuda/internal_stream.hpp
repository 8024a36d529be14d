#pragma once

#include <cuda_runtime_api.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <string_view>
#include <tandem/base/error.hpp>

namespace tandem::cuda {

/// The stream on which the library has memory made and filled, and kernels loaded: things that a host thread
/// waits for and that wait for nobody. One a GPU for all devices, and so all ranks, of this process: the
/// hardware has queues for 32 streams, and one beyond them stands behind whatever kernel waits in its queue.
class InternalStream {
 public:
  static constexpr std::string_view kServiceName = "cuda.internal_stream";
  [[nodiscard]] static Result<std::shared_ptr<InternalStream>> of(int gpu);
  ~InternalStream();
  InternalStream(const InternalStream&) = delete;
  InternalStream& operator=(const InternalStream&) = delete;

  /// Held while work is enqueued; empty where no two devices share the GPU. Streams have no hardware queues
  /// of their own: an idle one gets any that looks empty, and so does one whose kernel runs with nothing
  /// behind it. If that kernel waits for a signal, a second stream that is put there and then something
  /// behind the first kernel end up stuck behind it, the sender of the signal perhaps among them (measured:
  /// docs/design/cuda.md). So where ranks share a GPU they enqueue in turn, and a kernel that waits gets
  /// something behind it in the same turn. Ops are made of ops, so a thread may hold it more than once.
  using Turn = std::unique_lock<std::recursive_mutex>;
  [[nodiscard]] Turn take_turn() { return is_shared() ? Turn(turn_) : Turn(); }

  /// Has `enqueue(stream)` enqueue, and waits for it. Its refusal, or what became of the work. One thread at
  /// a time: cuStreamSynchronize() and cuMemFreeAsync() on one stream in several threads have been seen to
  /// lock each other out for good.
  template <class Enqueue>
  [[nodiscard]] cudaError_t run(Enqueue enqueue) {
    const Turn turn(turn_);
    const cudaError_t enqueued = enqueue(native_);
    return enqueued == cudaSuccess ? cudaStreamSynchronize(native_) : enqueued;
  }
  /// Without the wait.
  template <class Enqueue>
  [[nodiscard]] cudaError_t start(Enqueue enqueue) {
    const Turn turn(turn_);
    return enqueue(native_);
  }

  /// Whether several Device objects share the GPU, as they do where ranks are threads.
  [[nodiscard]] bool is_shared() const { return num_devices() > 1; }
  [[nodiscard]] int num_devices() const { return num_devices_.load(std::memory_order_relaxed); }
  void count_device() { num_devices_.fetch_add(1, std::memory_order_relaxed); }
  void forget_device() { num_devices_.fetch_sub(1, std::memory_order_relaxed); }

 private:
  explicit InternalStream(int gpu) : gpu_(gpu) {}

  const int gpu_;
  cudaStream_t native_ = nullptr;
  std::atomic<int> num_devices_{0};
  std::recursive_mutex turn_;
};

}  // namespace tandem::cuda
