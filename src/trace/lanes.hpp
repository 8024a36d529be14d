#pragma once

#include <string>
#include <tandem/trace/events.hpp>
#include <vector>

namespace tandem::trace {

/// The lanes of one rank, from top to bottom. No two events of one overlap: where they would, as waits on two
/// streams, the lane has a second one of its name and a number.
struct LaneList {
  std::vector<std::string> names;  ///< "product", "from rank 1", "waits", "waits 2"
  std::vector<int> of_event;       ///< the lane of each event, by its place in the list
};

[[nodiscard]] LaneList lanes_of(const RankEvents& rank);

}  // namespace tandem::trace
