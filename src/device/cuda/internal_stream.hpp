#pragma once

#include <cuda_runtime_api.h>

#include <atomic>
#include <memory>
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

  [[nodiscard]] cudaStream_t native() const { return native_; }

  /// Device objects that share the GPU: one, or one a rank where ranks are threads.
  [[nodiscard]] int num_devices() const { return num_devices_.load(std::memory_order_relaxed); }
  void count_device() { num_devices_.fetch_add(1, std::memory_order_relaxed); }
  void forget_device() { num_devices_.fetch_sub(1, std::memory_order_relaxed); }

 private:
  explicit InternalStream(int gpu) : gpu_(gpu) {}

  const int gpu_;
  cudaStream_t native_ = nullptr;
  std::atomic<int> num_devices_{0};
};

}  // namespace tandem::cuda
