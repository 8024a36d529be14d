#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <tandem/base/deadline.hpp>
#include <tandem/base/error.hpp>
#include <utility>

namespace tandem::cuda {

/// An event that has a time; of the thread's current GPU.
class TimedEvent {
 public:
  TimedEvent() = default;
  [[nodiscard]] static Result<TimedEvent> make();
  TimedEvent(TimedEvent&& other) noexcept : native_(std::exchange(other.native_, nullptr)) {}
  TimedEvent& operator=(TimedEvent&& other) noexcept {
    std::swap(native_, other.native_);
    return *this;
  }
  /// Also while the event is still to be reached.
  ~TimedEvent() {
    if (native_ != nullptr) static_cast<void>(cudaEventDestroy(native_));
  }

  [[nodiscard]] cudaEvent_t native() const { return native_; }
  [[nodiscard]] explicit operator bool() const { return native_ != nullptr; }

 private:
  cudaEvent_t native_ = nullptr;
};

/// The clocks of a GPU, read beside the host's. Events and %globaltimer count the same nanoseconds from
/// different beginnings.
struct ClockReading {
  std::int64_t host_ns = 0;   ///< CLOCK_MONOTONIC
  std::int64_t timer_ns = 0;  ///< %globaltimer at the same moment, but for uncertainty_ns
  TimedEvent event = {};
  std::int64_t event_ns = 0;  ///< %globaltimer when `event` was passed, but for event_uncertainty_ns
  std::int64_t uncertainty_ns = 0;
  std::int64_t event_uncertainty_ns = 0;
};

/// Reads them: on the stream of the library's own, in about 0.2 ms.
/// Errors:  kTimeout if the GPU has not answered by the deadline; kDriver.
[[nodiscard]] Result<ClockReading> read_clocks(int gpu, Deadline deadline);

/// Between two events that have been passed, the earlier one first.
/// Errors:  kInvalidArgument if one has not been passed; kDriver.
[[nodiscard]] Result<std::int64_t> elapsed_ns(const TimedEvent& begin, const TimedEvent& end);

}  // namespace tandem::cuda
