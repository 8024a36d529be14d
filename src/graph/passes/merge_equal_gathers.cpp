#include <algorithm>
#include <map>
#include <tandem/graph/passes.hpp>

#include "base/try.hpp"
#include "graph/ir/ops.hpp"
#include "graph/passes/opaque_ops.hpp"

namespace tandem::graph {

Result<void> merge_equal_gathers(Graph& graph) {
  const OpaqueOps opaque(graph);
  std::map<const Node*, std::vector<Node*>> seen;  // by shard
  for (auto place = graph.nodes().begin(); place != graph.nodes().end();) {
    Node& node = *place++;
    if (!node.is_call_of(op::kAllGather)) continue;
    std::vector<Node*>& earlier = seen[node.arguments()[0].node()];
    const auto equal = std::find_if(earlier.begin(), earlier.end(), [&](const Node* one) {
      return one->arguments() == node.arguments() && one->named_arguments() == node.named_arguments() &&
             !opaque.between(*one, node, {one, one->arguments()[0].node()});
    });
    if (equal == earlier.end()) {
      earlier.push_back(&node);
      continue;
    }
    graph.add_collectives(**equal, node.collectives());
    graph.replace_uses(node, **equal);
    TANDEM_TRY(graph.erase(node));
  }
  return {};
}

}  // namespace tandem::graph
