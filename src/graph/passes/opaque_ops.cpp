#include "graph/passes/opaque_ops.hpp"

#include <algorithm>
#include <string_view>

#include "graph/ir/signatures.hpp"

namespace tandem::graph {
namespace {

/// Whether PyTorch's conventions say so: "aten.gelu.default" computes, "aten.gelu_.default" changes its
/// input, and "aten.gelu.out" what is given by name. Normalisations that keep statistics break the
/// convention.
bool is_functional(const Node& node) {
  const std::string_view target = node.target();
  if (!target.starts_with("aten.") || target.find("batch_norm") != std::string_view::npos ||
      target.find("with_noise") != std::string_view::npos) {
    return false;
  }
  const std::string_view name = target.substr(5, target.find('.', 5) - 5);
  const auto& named = node.named_arguments();
  return !name.ends_with('_') && !target.ends_with("out") &&
         std::none_of(named.begin(), named.end(),
                      [](const auto& one) { return one.second.node() != nullptr; });
}

}  // namespace

OpaqueOps::OpaqueOps(Graph& graph) {
  for (Node& node : graph.nodes()) {
    if (contains(node)) nodes_.push_back(&node);
  }
}

bool OpaqueOps::contains(const Node& node) {
  return node.kind() == NodeKind::kCall && !is_known_op(node) && !is_functional(node);
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
