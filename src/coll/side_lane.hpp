#pragma once

#include <tandem/base/error.hpp>
#include <tandem/bootstrap/group.hpp>
#include <tandem/device/stream.hpp>

#include "base/function_ref.hpp"

namespace tandem::coll {

/// The caller's stream, and a second one of the group for copies and sums that overlap with its work. Where
/// copies do not overlap, the second one is the caller's stream too.
class SideLane {
 public:
  SideLane(Stream& current, Stream& side) : current_(current), side_(side) {}

  [[nodiscard]] Stream& stream() const { return side_; }
  [[nodiscard]] bool overlaps() const { return &current_ != &side_; }
  /// Later work of the lane comes behind what the caller's stream has now.
  [[nodiscard]] Result<void> follow() const { return overlaps() ? side_.wait(current_) : Result<void>(); }
  /// Later work of the caller's stream comes behind what the lane has now.
  [[nodiscard]] Result<void> join() const { return overlaps() ? current_.wait(side_) : Result<void>(); }

 private:
  Stream& current_;
  Stream& side_;
};

/// Calls `enqueue(lane)` with the group's lane, which follows `current`, and joins it also if that fails.
[[nodiscard]] Result<void> with_side_lane(Group& group, Stream& current,
                                          FunctionRef<Result<void>(const SideLane& lane)> enqueue);

}  // namespace tandem::coll
