#include "graph/passes/opaque_ops.hpp"

#include <algorithm>
#include <string_view>

#include "graph/ir/signatures.hpp"

namespace tandem::graph {
namespace {

/// By its name: "aten.gelu.default", but neither "aten.gelu_.default" nor "aten.gelu.out".
bool is_functional(std::string_view target) {
  if (!target.starts_with("aten.") && !target.starts_with("prims.")) return false;
  const auto overload = target.rfind('.');
  return target[overload - 1] != '_' && !target.substr(overload).starts_with(".out");
}

}  // namespace

OpaqueOps::OpaqueOps(Graph& graph) {
  for (Node& node : graph.nodes()) {
    if (contains(node)) nodes_.push_back(&node);
  }
}

bool OpaqueOps::contains(const Node& node) {
  return node.kind() == NodeKind::kCall && !is_known_op(node) && !is_functional(node.target());
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
