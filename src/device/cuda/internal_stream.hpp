#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <tandem/base/error.hpp>

#include "device/cuda/shared_gpu.hpp"

namespace tandem::cuda {

/// The stream on which the library has memory made and filled, and kernels loaded: things that a host thread
/// waits for and that wait for nobody. One a GPU for all devices, and so all ranks, of this process: the
/// hardware has queues for 32 streams, and one beyond them stands behind whatever kernel waits in its queue.
class InternalStream : public std::enable_shared_from_this<InternalStream> {
 public:
  [[nodiscard]] static Result<std::shared_ptr<InternalStream>> of(int gpu);
  ~InternalStream();
  InternalStream(const InternalStream&) = delete;
  InternalStream& operator=(const InternalStream&) = delete;

  /// What its devices share; keeps this alive.
  [[nodiscard]] std::shared_ptr<SharedGpu> sharing() { return {shared_from_this(), &sharing_}; }

  /// Has `enqueue(stream)` enqueue, and waits for it. Its refusal, or what became of the work. One thread at
  /// a time: cuStreamSynchronize() and cuMemFreeAsync() on one stream in several threads have been seen to
  /// lock each other out for good.
  template <class Enqueue>
  [[nodiscard]] cudaError_t run(Enqueue enqueue) {
    const auto alone = sharing_.exclude_others();
    const cudaError_t enqueued = enqueue(native_);
    return enqueued == cudaSuccess ? cudaStreamSynchronize(native_) : enqueued;
  }
  /// Without the wait.
  template <class Enqueue>
  [[nodiscard]] cudaError_t start(Enqueue enqueue) {
    const auto alone = sharing_.exclude_others();
    return enqueue(native_);
  }

 private:
  explicit InternalStream(int gpu) : gpu_(gpu) {}

  const int gpu_;
  cudaStream_t native_ = nullptr;
  SharedGpu sharing_;
};

}  // namespace tandem::cuda
