#include "device/cuda/cuda_frees.hpp"

#include "device/cuda/cuda_error.hpp"
#include "device/cuda/cuda_stream.hpp"

namespace tandem::cuda {

namespace {

/// Queries and events of this thread are allowed, and leave alone what another thread records in the
/// strictest mode.
class CaptureModeRelaxed {
 public:
  CaptureModeRelaxed() { static_cast<void>(cudaThreadExchangeStreamCaptureMode(&mode_)); }
  ~CaptureModeRelaxed() { static_cast<void>(cudaThreadExchangeStreamCaptureMode(&mode_)); }
  CaptureModeRelaxed(const CaptureModeRelaxed&) = delete;
  CaptureModeRelaxed& operator=(const CaptureModeRelaxed&) = delete;

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

}  // namespace

// A device that failed runs nothing more: then, too, there is nothing to wait for.

bool is_done(const StreamMark& mark) {
  const CaptureModeRelaxed relaxed;
  return cudaEventQuery(mark.event.get()) != cudaErrorNotReady;
}

std::optional<StreamMark> queued_on(const CudaStream* stream) {
  const CurrentDevice current(stream->device_idx());
  return stream->is_capturing() ? stream->before_capture() : make_mark(stream->native());
}

std::optional<StreamMark> make_mark(cudaStream_t stream) {
  const CaptureModeRelaxed relaxed;
  if (cudaStreamQuery(stream) != cudaErrorNotReady) return std::nullopt;
  cudaEvent_t event = nullptr;
  if (cudaEventCreateWithFlags(&event, cudaEventDisableTiming) == cudaSuccess) {
    StreamMark mark{{event, [](cudaEvent_t made) { static_cast<void>(cudaEventDestroy(made)); }}};
    if (cudaEventRecord(event, stream) == cudaSuccess) return mark;
  }
  // No event is left: frees are rare enough to wait for this one.
  static_cast<void>(cudaStreamSynchronize(stream));
  return std::nullopt;
}

}  // namespace tandem::cuda
