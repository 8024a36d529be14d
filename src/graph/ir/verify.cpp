#include <tandem/graph/verify.hpp>

#include <algorithm>
#include <set>

#include "base/format.hpp"
#include "base/try.hpp"
#include "graph/ir/shape_rules.hpp"
#include "graph/ir/signatures.hpp"

namespace tandem::graph {
namespace {

Result<void> check_uses(const Node& node, const std::set<const Node*>& earlier) {
  for (const Node* const input : node.inputs()) {
    if (!earlier.contains(input)) {
      return failf(ErrorCode::kInvalidArgument, "takes '{}', which is not before it", input->name());
    }
    const auto& users = input->users();
    if (std::count(users.begin(), users.end(), &node) != 1) {
      return failf(ErrorCode::kInvalidArgument, "is not among the users of '{}'", input->name());
    }
  }
  for (const Node* const user : node.users()) {
    const auto inputs = user->inputs();
    if (std::find(inputs.begin(), inputs.end(), &node) == inputs.end()) {
      return failf(ErrorCode::kInvalidArgument, "has the user '{}', which does not take it", user->name());
    }
  }
  return {};
}

Result<void> check_node(const Node& node, const std::set<const Node*>& earlier, int world_size) {
  TANDEM_TRY(check_uses(node, earlier));
  if (node.kind() != NodeKind::kCall) return {};
  TANDEM_TRY(check_signature(node));
  return check_shapes(node, world_size);
}

}  // namespace

Result<void> verify(const Graph& graph) {
  std::set<const Node*> earlier;
  for (const Node& node : graph.nodes()) {
    if (const auto ok = check_node(node, earlier, graph.header.world_size); !ok) {
      return failf(ErrorCode::kInvalidArgument, "graph: node {} '{}' ({}): {}", earlier.size(), node.name(),
                   node.target(), ok.error().text());
    }
    const bool is_last = &node == &graph.nodes().back();
    if ((node.kind() == NodeKind::kOutput) != is_last) {
      return failf(ErrorCode::kInvalidArgument, "graph: node {} '{}': need one output, as the last node",
                   earlier.size(), node.name());
    }
    earlier.insert(&node);
  }
  if (earlier.empty()) return fail(ErrorCode::kInvalidArgument, "graph: no nodes, need an output");
  return {};
}

}  // namespace tandem::graph
