#include "coll/nan_check.hpp"

#include <algorithm>

#include "base/try.hpp"
#include "coll/backend.hpp"
#include "coll/group_lanes.hpp"
#include "symm/reporter.hpp"
#include "timeline/timeline_impl.hpp"

namespace tandem::coll {
namespace {

bool may_have_nan(const CheckedInput& input) {
  return input.view != nullptr && is_floating(input.view->dtype) && input.view->numel() > 0;
}

}  // namespace

Result<void> prepare_nan_checks(Group& group, Device& device) {
  TANDEM_TRY(open_lanes(2, group, device));
  TANDEM_TRY(symm::reporter_of(group, device));
  return {};
}

Result<void> enqueue_nan_check(std::string_view op, const CheckedInput& input, Group& group, Stream& stream) {
  if (!may_have_nan(input)) return {};
  TANDEM_ASSIGN(Backend* const backend, backend_of(op, stream));
  TANDEM_ASSIGN(const auto reporter, symm::reporter_of(group, stream.device()));
  TANDEM_TRY(reporter->watch(stream));
  const Stream::Range range(stream, "NaN check");
  return backend->look_for_nan({.input = *input.view, .op = op, .tensor = input.name}, reporter, stream);
}

Result<void> enqueue_nan_checks(std::string_view op, std::span<const CheckedInput> inputs, Group& group,
                                Stream& stream) {
  if (std::none_of(inputs.begin(), inputs.end(), may_have_nan)) return {};
  Stream& side = side_lane(1, group, stream);
  TANDEM_TRY(side.wait(stream));
  Timeline::Impl* const timeline = timeline::noting(group);
  if (timeline != nullptr) TANDEM_TRY(timeline->begin(side, trace::kNoText));
  Result<void> enqueued;
  for (const CheckedInput& input : inputs) {
    if (enqueued) enqueued = enqueue_nan_check(op, input, group, side);
  }
  TANDEM_TRY(stream.wait(side));  // also for those before one that failed
  TANDEM_TRY(enqueued);
  if (timeline == nullptr) return {};
  TANDEM_TRY(timeline->end(side, "check for NaN", {.event = {.category = trace::Category::kCheck}}, 0));
  return timeline->join(stream, side,
                        {.event = {.category = trace::Category::kWait, .wait_for = trace::WaitFor::kOwn}});
}

}  // namespace tandem::coll
