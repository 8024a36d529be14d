#include "device/cuda/cuda_event.hpp"

#include "base/format.hpp"
#include "base/try.hpp"
#include "device/cuda/cuda_error.hpp"
#include "device/cuda/cuda_stream.hpp"
#include "device/cuda/host_wait.hpp"

namespace tandem::cuda {

Result<std::unique_ptr<Event>> CudaEvent::create(const Device& device, unsigned flags) {
  const CurrentDevice current(device.id().index);
  std::unique_ptr<CudaEvent> event(new CudaEvent(device));
  event->has_time_ = (flags & cudaEventDisableTiming) == 0;
  TANDEM_TRY(check_cuda("create_event", cudaEventCreateWithFlags(&event->native_, flags)));
  return event;
}

CudaEvent::~CudaEvent() {
  if (native_ == nullptr) return;
  const CurrentDevice current(device_.index);
  static_cast<void>(cudaEventDestroy(native_));
}

Result<void> CudaEvent::record_on(CudaStream& stream) {
  // Stated before the record: a query of a mark in a graph would be an error.
  mark_ = stream.is_capturing() ? Mark::kCaptured : Mark::kEnqueued;
  TANDEM_TRY(stream.enqueue("record", Waits::kForNobody,
                            [&](cudaStream_t on) { return cudaEventRecord(native_, on); }));
  stream.hand_watches_to(watches_);
  return {};
}

Result<void> CudaEvent::make_wait(CudaStream& stream) const {
  if (mark_ == Mark::kNever) return {};  // in a stream that records, CUDA would call it an error
  TANDEM_TRY(stream.enqueue("wait", Waits::kForNobody, [&](cudaStream_t on) {
    return cudaStreamWaitEvent(on, native_, cudaEventWaitDefault);
  }));
  stream.inherit_watches(watches_);
  return {};
}

bool CudaEvent::is_done() const {
  if (mark_ != Mark::kEnqueued) return true;
  const CurrentDevice current(device_.index);
  // A device that failed will not get there; whoever synchronizes is told.
  return cudaEventQuery(native_) != cudaErrorNotReady;
}

Result<void> CudaEvent::synchronize(Deadline deadline) {
  if (mark_ != Mark::kEnqueued) return {};
  const CurrentDevice current(device_.index);
  const cudaError_t code = wait_until_done(native_, watches_, deadline, spin_);
  if (code == cudaErrorNotReady) {
    return failf(ErrorCode::kTimeout,
                 "event: the deadline passed with the work before the mark on {} not done",
                 to_string(device_));
  }
  TANDEM_TRY(check_cuda("event", code));
  return watches_.status();
}

Result<double> CudaEvent::elapsed_us(const Event& since) const {
  const auto* start = dynamic_cast<const CudaEvent*>(&since);
  if (start == nullptr)
    return fail(ErrorCode::kInvalidArgument, "elapsed_us: `since` is an event of another backend");
  for (const CudaEvent* event : {start, this}) {
    if (!event->has_time_)
      return fail(ErrorCode::kInvalidArgument, "elapsed_us: an event is a mark, which has no time");
    const Mark mark = event->mark_;
    if (mark == Mark::kNever)
      return fail(ErrorCode::kInvalidArgument, "elapsed_us: an event was never recorded");
    if (mark == Mark::kCaptured) {
      return fail(ErrorCode::kInvalidArgument,
                  "elapsed_us: an event was last recorded into a graph, where it has no time");
    }
    if (!event->is_done()) {
      return fail(ErrorCode::kInvalidArgument, "elapsed_us: an event is not done; synchronize it first");
    }
  }
  const CurrentDevice current(device_.index);
  float elapsed_ms = 0;
  TANDEM_TRY(check_cuda("elapsed_us", cudaEventElapsedTime(&elapsed_ms, start->native_, native_)));
  return 1e3 * static_cast<double>(elapsed_ms);
}

}  // namespace tandem::cuda
