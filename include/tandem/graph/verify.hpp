#pragma once

#include <tandem/graph/graph.hpp>

namespace tandem::graph {

/// Checks that a graph is consistent. An earlier node makes every argument. There is one output, at the end.
/// The lists of users agree with the arguments. Ops that tandem knows have the right number and kinds of
/// arguments, and the shapes and types that follow from them. Other ops are accepted as they are.
/// Errors:  kInvalidArgument with the node's name and line, what it has and what it needs.
[[nodiscard]] Result<void> verify(const Graph& graph);

}  // namespace tandem::graph
