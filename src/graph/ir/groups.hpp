#pragma once

#include <map>
#include <string>
#include <tandem/graph/graph.hpp>

namespace tandem::graph {

/// The name of the process group of a collective, or null for another node.
[[nodiscard]] const std::string* group_of(const Node& node);

/// The process groups of collectives other than the program's own, by name, with their numbers of ranks:
/// those that the file lists, or that gathers and scatters take. 0 where nothing says it.
[[nodiscard]] std::map<std::string, std::int64_t> other_groups_of(const Graph& graph);

}  // namespace tandem::graph
