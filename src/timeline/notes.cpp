#include "base/format.hpp"
#include "base/try.hpp"
#include "timeline/timeline_impl.hpp"

namespace tandem::timeline {
namespace {

using trace::Category;
using trace::Direction;
using trace::WaitFor;

/// Where ranks meet to agree on a call: no channel of a pad.
constexpr std::int32_t kAgreement = meeting_of(-1);
/// Collectives that are one event, which ends when all ranks have begun it: no channel either.
constexpr std::int32_t kCollective = 1 << 14;

}  // namespace

Timeline::Impl* noting(const Group& group) {
  const Timeline* const timeline = group.timeline();
  if (timeline == nullptr || !timeline->impl().is_noting()) return nullptr;
  return &timeline->impl();
}

NotedCall::NotedCall(const Group& group)
    : timeline_(group.timeline() == nullptr ? nullptr : &group.timeline()->impl()) {}

Result<void> NotedCall::begin(Stream& stream, std::string_view label, std::string_view algorithm,
                              bool is_recorded) {
  if (timeline_ == nullptr) return {};
  return timeline_->begin_call(stream, label, algorithm, is_recorded);
}

Result<void> NotedCall::agreed(Stream& stream) {
  if (!is_noting()) return {};
  num_events_ = timeline_->num_events();
  // No stream waits where hosts agree.
  if (stream.device().id().kind != DeviceKind::kCpu) return {};
  TANDEM_TRY(timeline_->end(
      stream, "agree with all ranks",
      {.event = {.category = Category::kWait, .wait_for = WaitFor::kAll}, .channel = kAgreement}, 0));
  num_events_ = timeline_->num_events();
  return {};
}

Result<void> NotedCall::finish(Stream& stream) {
  if (!is_noting() || timeline_->num_events() > num_events_) return {};
  return timeline_->end(stream, "all of it", {.event = {.category = Category::kCopy}}, 0);
}

Result<void> Parts::copied(const char* what, std::int64_t bytes) const {
  if (timeline_ == nullptr) return {};
  return timeline_->end(stream_, what, {.event = {.category = Category::kOther}}, bytes);
}

Result<void> Parts::got(int rank, std::int64_t bytes) const {
  if (rank == rank_) return copied("copy the own part", bytes);
  if (timeline_ == nullptr) return {};
  return timeline_->end(stream_, fmt::format("get from rank {}", rank),
                        {.event = {.peer = rank, .category = Category::kCopy, .direction = Direction::kFrom}},
                        bytes);
}

Result<void> Parts::begin() const {
  return timeline_ == nullptr ? Result<void>() : timeline_->begin(stream_, trace::kNoText);
}

Result<void> Parts::put(int rank, std::int64_t bytes) const {
  if (timeline_ == nullptr) return {};
  return timeline_->end(stream_, fmt::format("put to rank {}", rank),
                        {.event = {.peer = rank, .category = Category::kCopy, .direction = Direction::kTo}},
                        bytes);
}

Result<void> Parts::summed() const {
  if (timeline_ == nullptr) return {};
  return timeline_->end(stream_, "sum", {.event = {.category = Category::kSum}}, 0);
}

Result<void> Parts::met(int channel, bool on_stream) const {
  if (timeline_ == nullptr) return {};
  return timeline_->end(
      stream_, fmt::format("barrier {}{}", channel, on_stream ? " by stream operations" : ""),
      {.event = {.category = Category::kWait, .wait_for = WaitFor::kAll}, .channel = meeting_of(channel)}, 0);
}

Result<void> Parts::done(std::string_view op, std::string_view algorithm, std::int64_t bytes) const {
  if (timeline_ == nullptr) return {};
  timeline_->set_algorithm(algorithm);
  if (timeline_->num_events() > num_events_) return {};
  return timeline_->end(stream_, fmt::format("{} by {}", op, algorithm),
                        {.event = {.category = Category::kCopy}, .channel = kCollective}, bytes);
}

}  // namespace tandem::timeline
