#include "program/noted_steps.hpp"

#include <tandem/trace/enqueue_trace.hpp>

namespace tandem::program {
namespace {

using trace::Category;
using trace::Direction;
using trace::WaitFor;

trace::Event event_of(const Step& step) {
  trace::Event event{.peer = step.peer, .chunk = step.slot};
  switch (step.kind) {
    case StepKind::kGet:
    case StepKind::kRead:
    case StepKind::kCross:
      event.category = Category::kCopy;
      event.direction = Direction::kFrom;
      break;
    case StepKind::kExchanged:
      event.category = Category::kCopy;
      event.direction = Direction::kFrom;
      event.peer = step.source;
      event.is_between_hosts = true;
      break;
    case StepKind::kPut:
      event.category = Category::kCopy;
      event.direction = Direction::kTo;
      break;
    case StepKind::kAllGather:
    case StepKind::kReduceScatter:
    case StepKind::kAllReduce:
      event.category = Category::kCopy;
      break;
    case StepKind::kReset:
    case StepKind::kBarrier:
      event.category = Category::kWait;
      event.wait_for = WaitFor::kAll;
      break;
    case StepKind::kAwait:
      event.category = Category::kWait;
      event.wait_for = WaitFor::kPeer;
      break;
    case StepKind::kJoin:
      event.category = Category::kWait;
      event.wait_for = WaitFor::kOwn;
      break;
    case StepKind::kProduct:
    case StepKind::kProductScatter:
      event.category = Category::kProduct;
      break;
    case StepKind::kSum:
    case StepKind::kSumRanks:
      event.category = Category::kSum;
      break;
    case StepKind::kCheck:
      event.category = Category::kCheck;
      break;
    case StepKind::kCopy:
    case StepKind::kExchange:
    case StepKind::kWriteWord:
    case StepKind::kNap:
    case StepKind::kCast:
    case StepKind::kQuantize:
      event.category = Category::kOther;
      break;
  }
  return event;
}

}  // namespace

std::shared_ptr<const timeline::StepList> noted_steps_of(const Program& program) {
  auto list = std::make_shared<timeline::StepList>();
  trace::EnqueueTrace schedule;
  for (const Step& step : program.steps) {
    timeline::NamedStep& named = list->steps.emplace_back();
    named.text = program.to_string(step);
    named.stream = lane_name(busy_lane(step), program.num_lanes);
    named.event = event_of(step);
    named.chunks.per_rank = program.chunks_per_rank;
    if (step.kind == StepKind::kProduct) {
      const auto& arrival = program.products[static_cast<std::size_t>(step.product)].arrival;
      if (arrival) named.chunks.first = arrival->words.first;
    }
    if (named.event.wait_for == trace::WaitFor::kAll)
      named.channel = timeline::meeting_of(program.base_channel + step.channel);
    if (const auto traced = program::traced(step)) {
      named.notation = trace::to_string(*traced);
      schedule.add(*traced);
    }
  }
  list->schedule = schedule.to_string();
  return list;
}

}  // namespace tandem::program
