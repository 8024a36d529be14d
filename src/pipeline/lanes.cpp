#include "pipeline/lanes.hpp"

#include <chrono>

#include "base/try.hpp"

namespace tandem::pipeline {

using trace::StepKind;

Result<void> Lanes::barrier(const Lane& lane, int channel) {
  note({.kind = StepKind::kBarrier, .stream = lane.role, .channel = channel});
  return workspace_.barrier(lane.stream, base_channel_ + channel);
}

Result<void> Lanes::join(const Lane& lane) {
  note({.kind = StepKind::kJoin, .stream = lane.role});
  const Lane& other = lane.role == trace::StreamRole::kCurrent ? side_ : current_;
  return other.stream.wait(lane.stream);
}

Result<void> Lanes::nap() {
  constexpr std::chrono::nanoseconds kNap{100};
  note({.kind = StepKind::kNap, .stream = trace::StreamRole::kCurrent});
  return current_.stream.sleep(kNap);
}

Result<void> Lanes::finish(Result<void> result) {
  if (!result) static_cast<void>(join(side()));  // its own failure would say less than `result`
  return result;
}

}  // namespace tandem::pipeline
