#include "fused/repeated_calls.hpp"

#include <chrono>
#include <tandem/base/log.hpp>

#include "base/format.hpp"
#include "base/try.hpp"
#include "device/recorder.hpp"

namespace tandem::fused {

Replays* replays_for(const OpPlan& plan, Group& group, const Stream& stream, bool is_traced) {
  const Config& config = group.config();
  if (plan.algorithm == Algorithm::kNative || is_traced || config.record_after == 0) return nullptr;
  if (config.link_delay.count() > 0 || !config.fault.empty()) return nullptr;
  const Recorder* const recorder = stream.device().service<Recorder>();
  if (recorder == nullptr || !recorder->is_usable() || stream.is_capturing()) return nullptr;
  return &device_memory(group, stream.device().id()).replays;
}

Result<Stream*> recording_stream(Group& group, Device& device) {
  DeviceMemory& memory = device_memory(group, device.id());
  if (!memory.recording_side) {
    TANDEM_ASSIGN(memory.recording, device.create_stream());
    TANDEM_ASSIGN(memory.recording_side, device.create_stream());
  }
  return memory.recording.get();
}

Result<std::unique_ptr<Graph>> record(const OpPlan& plan, Group& group, Stream& on,
                                      FunctionRef<Result<void>()> steps) {
  const auto begin = std::chrono::steady_clock::now();
  auto graph = on.device().service<Recorder>()->record(on, steps);
  // They have nothing to do, but were told to keep what the steps use. What the group failed in before is the
  // caller's stream's to tell.
  const Deadline deadline = Deadline::after(group.config().op_timeout);
  static_cast<void>(on.synchronize(deadline));
  static_cast<void>(stream_pair(group, on).side.synchronize(deadline));
  const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begin;
  log(group.config().log_level, LogLevel::kDebug,
      fmt::format("{} recorded in {:.0f} us", plan.label, took.count()));
  return graph;
}

void give_up_recording(Replay& replay, const Group& group, const OpPlan& plan, const Error& why) {
  replay.is_refused = true;
  log(group.config().log_level, LogLevel::kInfo,
      fmt::format("{} is not recorded, its steps are enqueued one by one: {}", plan.label, why.text()));
}

}  // namespace tandem::fused
