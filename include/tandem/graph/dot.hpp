#pragma once

#include <string>
#include <tandem/graph/graph.hpp>

namespace tandem::graph {

/// A picture for Graphviz. Collectives, products and fused ops have different colours, and edges have shapes.
[[nodiscard]] std::string to_dot(const Graph& graph);

}  // namespace tandem::graph
