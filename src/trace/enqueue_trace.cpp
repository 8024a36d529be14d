#include <fmt/format.h>

#include <tandem/trace/enqueue_trace.hpp>

namespace tandem::trace {

std::string to_string(const Step& step) {
  const char* stream = step.stream == StreamRole::kCurrent ? "cur" : "bk";
  switch (step.kind) {
    case StepKind::kBarrier:
      return fmt::format("{}:B{}", stream, step.channel);
    case StepKind::kJoin:
      return step.stream == StreamRole::kCurrent ? "cur>bk" : "bk>cur";
    case StepKind::kPublish:
      return fmt::format("{}:mv", stream);
    case StepKind::kConsumeOwn:
      return fmt::format("{}:use{}(own)", stream, step.peer);
    case StepKind::kGet:
      if (step.peer < 0) return fmt::format("{}:get*.P{}", stream, step.slot);
      return step.slot < 0 ? fmt::format("{}:get{}", stream, step.peer)
                           : fmt::format("{}:get{}.P{}", stream, step.peer, step.slot);
    case StepKind::kConsume:
      return fmt::format("{}:use{}", stream, step.peer);
    case StepKind::kKeepOwn:
      return fmt::format("{}:own->out{}", stream, step.peer);
    case StepKind::kProduce:
      if (step.peer < 0) return fmt::format("{}:make->P{}", stream, step.slot);
      return step.slot < 0 ? fmt::format("{}:make{}->out", stream, step.peer)
                           : fmt::format("{}:make{}->P{}", stream, step.peer, step.slot);
    case StepKind::kNap:
      return fmt::format("{}:nap", stream);
    case StepKind::kPut:
      return fmt::format("{}:put{}.P{}", stream, step.peer, step.slot);
    case StepKind::kTell:
      return fmt::format("{}:tell{}.P{}", stream, step.peer, step.slot);
    case StepKind::kAwait:
      return fmt::format("{}:await{}.P{}", stream, step.peer, step.slot);
    case StepKind::kGiveSum:
      return fmt::format("{}:sum->{}.P{}", stream, step.peer, step.slot);
    case StepKind::kTakeSum:
      return fmt::format("{}:sum{}.P{}", stream, step.peer, step.slot);
    case StepKind::kCheck:
      return fmt::format("{}:check", stream);
  }
  return "?";
}

std::string EnqueueTrace::to_string() const {
  std::string text;
  for (const Step& step : steps_) {
    if (!text.empty()) text += ' ';
    text += trace::to_string(step);
  }
  return text;
}

}  // namespace tandem::trace
