#include "fused/repeated_calls.hpp"

#include <chrono>
#include <tandem/base/log.hpp>
#include <tandem/base/time_text.hpp>

#include "base/format.hpp"
#include "base/try.hpp"
#include "device/recorder.hpp"

namespace tandem::fused {

Replays* replays_for(const OpPlan& plan, Group& group, const Stream& stream, bool is_traced) {
  const Config& config = group.config();
  if (plan.algorithm == Algorithm::kNative || !plan.is_recordable || is_traced || config.record_after == 0)
    return nullptr;
  if (config.link_delay.count() > 0 || !config.fault.empty()) return nullptr;
  const Device& device = stream.device();
  const Recorder* const recorder = device.service<Recorder>();
  if (recorder == nullptr || !recorder->is_usable() || stream.is_capturing()) return nullptr;
  RecordedCalls& recorded = device_memory(group, device.id()).recorded;
  // Where the device has been opened anew, the memory of its products is another.
  if (recorded.device != &device) recorded = {.device = &device};
  return &recorded.replays;
}

Result<Stream*> recording_stream(Group& group, Device& device) {
  RecordedCalls& recorded = device_memory(group, device.id()).recorded;
  if (!recorded.stream) {
    TANDEM_ASSIGN(recorded.side, device.create_stream());
    TANDEM_ASSIGN(recorded.stream, device.create_stream());
  }
  return recorded.stream.get();
}

Result<std::unique_ptr<Graph>> record(const OpPlan& plan, Group& group, Stream& on,
                                      FunctionRef<Result<void>()> steps) {
  const auto begin = std::chrono::steady_clock::now();
  auto graph = on.device().service<Recorder>()->record({on, stream_pair(group, on).side}, steps);
  const auto took = std::chrono::steady_clock::now() - begin;
  if (graph) {
    log(group.config().log_level, LogLevel::kDebug,
        fmt::format("{} recorded in {}", plan.label, time_text(took)));
  }
  return graph;
}

void give_up_recording(Replay& replay, const Group& group, OpPlan& plan, const Error& why) {
  replay.is_refused = true;
  if (why.code() == ErrorCode::kUnsupported) plan.is_recordable = false;
  log(group.config().log_level, LogLevel::kInfo,
      fmt::format("{} is not recorded, its steps are enqueued one by one: {}", plan.label, why.text()));
}

}  // namespace tandem::fused
