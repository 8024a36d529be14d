#pragma once

#include <tandem/graph/graph.hpp>

namespace tandem::graph {

/// Whether a graph holds together: every argument is made by an earlier node, one output at the end and none
/// elsewhere, users as the arguments say, and, for ops that tandem knows, the number and kinds of the
/// arguments and the shapes and types that follow from them. Ops that it does not know are taken as they are.
/// Errors:  kInvalidArgument with the node's name and line: got, needed.
[[nodiscard]] Result<void> verify(const Graph& graph);

}  // namespace tandem::graph
