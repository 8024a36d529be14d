#pragma once

#include <cstdint>
#include <tandem/base/error.hpp>
#include <tandem/base/tensor.hpp>
#include <tandem/device/stream.hpp>
#include <tandem/symm/handle.hpp>
#include <tandem/trace/enqueue_trace.hpp>

#include "pipeline/schedules.hpp"

namespace tandem::pipeline {

/// One of a schedule's two streams.
struct Lane {
  Stream& stream;
  trace::StreamRole role;
};

/// Sub-buffers of a workspace start at multiples of this.
inline constexpr std::int64_t kSubBufferAlignment = 128;

/// The two streams of one op and the steps that both schedules have: enqueued and traced in one place.
class Lanes {
 public:
  /// `base_channel`: the first of the schedule's channels; a trace counts from it.
  Lanes(const StreamPair& streams, symm::Handle& workspace, int base_channel, trace::EnqueueTrace* trace)
      : current_{streams.current, trace::StreamRole::kCurrent},
        side_{streams.side, trace::StreamRole::kSide},
        workspace_(workspace),
        base_channel_(base_channel),
        trace_(trace) {}

  [[nodiscard]] const Lane& current() const { return current_; }
  [[nodiscard]] const Lane& side() const { return side_; }
  /// Odd steps go to the side stream, even ones to the caller's.
  [[nodiscard]] const Lane& of_step(int step) const { return step % 2 == 1 ? side_ : current_; }

  [[nodiscard]] Result<void> barrier(const Lane& lane, int channel);
  /// The other stream waits for all that is enqueued on `lane` so far.
  [[nodiscard]] Result<void> join(const Lane& lane);
  /// A moment of nothing at the head of the caller's stream, so that the side stream's first product starts
  /// first on every rank. Only a hint: no result depends on it.
  [[nodiscard]] Result<void> nap();
  /// The schedule's end. One that broke off still joins: the caller has only his own stream to wait for
  /// before he lets go of memory that the side stream works on.
  [[nodiscard]] Result<void> finish(Result<void> result);
  /// Notes a step that the schedule enqueues itself.
  void note(const trace::Step& step) {
    if (trace_ != nullptr) trace_->add(step);
  }

 private:
  Lane current_;
  Lane side_;
  symm::Handle& workspace_;
  int base_channel_;
  trace::EnqueueTrace* trace_;
};

}  // namespace tandem::pipeline
