#pragma once

#include <map>
#include <set>
#include <string>

#include "graph/interpreter/call.hpp"

namespace tandem::graph::interpreter {

/// Values of placeholders, by name. A placeholder that makes no tensor, a generator, has none.
using Inputs = std::map<std::string, HostTensor, std::less<>>;

/// What a call makes, of the type that the graph says. Errors: the op's, with the node's name and op.
[[nodiscard]] Result<Values> run_node(const graph::Node& node, const ValueTable& values, const Ranks& ranks);

using NodeSet = std::set<const graph::Node*>;

/// Runs all nodes and returns the values of `wanted`; another value goes with its last user.
[[nodiscard]] Result<ValueTable> run_graph(const graph::Graph& graph, const Inputs& inputs,
                                           const NodeSet& wanted, const Ranks& ranks);

}  // namespace tandem::graph::interpreter
