#include "trace/lanes.hpp"

#include <algorithm>
#include <compare>
#include <map>
#include <numeric>
#include <utility>

#include "base/format.hpp"

namespace tandem::trace {
namespace {

/// Lanes stand in this order.
enum class Kind : std::uint8_t { kProduct, kFrom, kTo, kCollective, kSum, kWait, kCheck, kOther };

struct Lane {
  Kind kind = Kind::kOther;
  std::int32_t peer = -1;  // of copies; -1: of all
  int copy = 0;            // of lanes of one name, from 0
  friend auto operator<=>(const Lane&, const Lane&) = default;
};

Kind kind_of(const Event& event) {
  switch (event.category) {
    case Category::kProduct:
      return Kind::kProduct;
    case Category::kCopy:
      if (event.direction == Direction::kNone) return Kind::kCollective;
      return event.direction == Direction::kFrom ? Kind::kFrom : Kind::kTo;
    case Category::kSum:
      return Kind::kSum;
    case Category::kWait:
      return Kind::kWait;
    case Category::kCheck:
      return Kind::kCheck;
    case Category::kOther:
      break;
  }
  return Kind::kOther;
}

std::string name_of(const Lane& lane) {
  const auto with_peer = [&](const char* way) {
    return lane.peer < 0 ? fmt::format("{} all ranks", way) : fmt::format("{} rank {}", way, lane.peer);
  };
  switch (lane.kind) {
    case Kind::kProduct:
      return "product";
    case Kind::kFrom:
      return with_peer("from");
    case Kind::kTo:
      return with_peer("to");
    case Kind::kCollective:
      return "collectives";
    case Kind::kSum:
      return "sums";
    case Kind::kWait:
      return "waits";
    case Kind::kCheck:
      return "NaN check";
    case Kind::kOther:
      break;
  }
  return "other";
}

bool has_peer(Kind kind) {
  return kind == Kind::kFrom || kind == Kind::kTo;
}

}  // namespace

LaneList lanes_of(const RankEvents& rank) {
  std::vector<std::size_t> order(rank.events.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return rank.events[a].begin_ns < rank.events[b].begin_ns;
  });
  std::map<Lane, std::int64_t> ends;  // of each lane's last event
  std::vector<Lane> lane_of(order.size());
  for (const std::size_t idx : order) {
    const Event& event = rank.events[idx];
    Lane lane{.kind = kind_of(event)};
    if (has_peer(lane.kind)) lane.peer = event.peer;
    for (;; ++lane.copy) {
      const auto [last, is_free] = ends.try_emplace(lane, event.end_ns);
      if (!is_free && last->second > event.begin_ns) continue;
      last->second = event.end_ns;
      break;
    }
    lane_of[idx] = lane;
  }
  LaneList list;
  std::map<Lane, int> numbers;
  for (const auto& [lane, end] : ends) {
    numbers[lane] = static_cast<int>(list.names.size());
    list.names.push_back(lane.copy == 0 ? name_of(lane) : fmt::format("{} {}", name_of(lane), lane.copy + 1));
  }
  for (const Lane& lane : lane_of) list.of_event.push_back(numbers[lane]);
  return list;
}

}  // namespace tandem::trace
