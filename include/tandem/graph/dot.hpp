#pragma once

#include <string>
#include <tandem/graph/graph.hpp>

namespace tandem::graph {

/// A picture for Graphviz: collectives, products and fused ops in colours of their own, with shapes on the
/// edges.
[[nodiscard]] std::string to_dot(const Graph& graph);

}  // namespace tandem::graph
