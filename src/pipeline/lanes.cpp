#include "pipeline/lanes.hpp"

#include <chrono>
#include <tandem/device/device.hpp>

#include "base/try.hpp"

namespace tandem::pipeline {

using trace::StepKind;

Result<Lanes> Lanes::open(Stream& current, symm::Handle& workspace, int base_channel,
                          trace::EnqueueTrace* trace) {
  TANDEM_ASSIGN(Stream * side, current.device().side_stream(0));
  return Lanes(current, *side, workspace, base_channel, trace);
}

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

void forget_lost_faults(Device& device) {
  constexpr std::chrono::milliseconds kPatience{10};  // work that is being skipped takes microseconds
  if (auto side = device.side_stream(0)) static_cast<void>((*side)->synchronize(Deadline::after(kPatience)));
}

}  // namespace tandem::pipeline
