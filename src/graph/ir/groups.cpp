#include "graph/ir/groups.hpp"

#include <algorithm>
#include <string_view>

#include "graph/ir/ops.hpp"

namespace tandem::graph {
namespace {

/// Where a collective has its group. Its number of ranks stands before it, if the op takes that.
struct Place {
  std::string_view target;
  std::size_t group;
  bool has_size;
};
constexpr Place kPlaces[] = {
    {op::kFunctionalAllGather, 2, true},
    {op::kFunctionalReduceScatter, 3, true},
    {op::kFunctionalAllReduce, 2, false},
    {"_c10d_functional.all_gather_into_tensor_coalesced.default", 2, true},
    {"_c10d_functional.reduce_scatter_tensor_coalesced.default", 3, true},
    {"_c10d_functional.all_reduce_coalesced.default", 2, false},
    {op::kLowContentionAllGather, 1, false},
    {op::kLowContentionReduceScatter, 2, false},
    {op::kAllToAll, 3, false},
    {op::kBroadcast, 2, false},
    {op::kAllGather, 3, true},
    {op::kReduceScatter, 4, true},
};

const Place* place_in(const Node& node) {
  const auto* const found = std::find_if(std::begin(kPlaces), std::end(kPlaces),
                                         [&](const Place& place) { return node.is_call_of(place.target); });
  return found != std::end(kPlaces) && found->group < node.arguments().size() ? found : nullptr;
}

}  // namespace

const std::string* group_of(const Node& node) {
  const Place* const place = place_in(node);
  return place == nullptr ? nullptr : std::get_if<std::string>(&node.arguments()[place->group].value);
}

std::map<std::string, std::int64_t> other_groups_of(const Graph& graph) {
  std::map<std::string, std::int64_t> groups;
  for (const Node& node : graph.nodes()) {
    const std::string* const name = group_of(node);
    if (name == nullptr || *name == graph.header.group) continue;
    std::int64_t& num_ranks = groups[*name];
    const auto listed = graph.header.groups.find(*name);
    const Place& place = *place_in(node);
    if (listed != graph.header.groups.end()) {
      num_ranks = listed->second.num_ranks;
    } else if (place.has_size) {
      num_ranks = node.arguments()[place.group - 1].integer().value_or(num_ranks);
    }
  }
  return groups;
}

}  // namespace tandem::graph
