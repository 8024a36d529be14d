#include "graph/passes/opaque_ops.hpp"

#include <algorithm>

#include "graph/ir/signatures.hpp"
#include "graph/passes/pure_ops.hpp"

namespace tandem::graph {

OpaqueOps::OpaqueOps(Graph& graph) {
  for (Node& node : graph.nodes()) {
    if (contains(node)) nodes_.push_back(&node);
  }
}

bool OpaqueOps::contains(const Node& node) {
  return node.kind() == NodeKind::kCall && !is_known_op(node) && why_pure(node).empty();
}

Node* OpaqueOps::first_after(const Node& node) const {
  const auto found = std::upper_bound(nodes_.begin(), nodes_.end(), &node,
                                      [](const Node* a, const Node* b) { return Graph::is_before(*a, *b); });
  return found == nodes_.end() ? nullptr : *found;
}

bool OpaqueOps::between(const Node& first, const Node& second) const {
  const Node* const opaque = first_after(first);
  return opaque != nullptr && Graph::is_before(*opaque, second);
}

}  // namespace tandem::graph
