#include "coll/side_lane.hpp"

#include "base/try.hpp"
#include "coll/backend.hpp"
#include "coll/group_lanes.hpp"

namespace tandem::coll {

Result<void> with_side_lane(Group& group, Stream& current,
                            FunctionRef<Result<void>(const SideLane& lane)> enqueue) {
  TANDEM_ASSIGN(const Backend* const backend, backend_of("side lane", current));
  if (group.size() == 1 || !backend->uses_copy_engines(current)) return enqueue(SideLane(current, current));
  TANDEM_ASSIGN(Stream* const side, urgent_lane(group, current.device()));
  const SideLane lane(current, *side);
  TANDEM_TRY(lane.follow());
  const Result<void> enqueued = enqueue(lane);
  const Result<void> joined = lane.join();
  return enqueued ? joined : enqueued;
}

}  // namespace tandem::coll
