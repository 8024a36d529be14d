#include <tandem/graph/verify.hpp>

#include <algorithm>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/format.hpp"
#include "base/try.hpp"
#include "graph/ir/shape_rules.hpp"
#include "graph/ir/signatures.hpp"

namespace tandem::graph {
namespace {

using Earlier = std::unordered_set<const Node*>;

Result<void> check_inputs(const Node& node, const Earlier& earlier) {
  for (const Node* const input : node.inputs()) {
    if (earlier.contains(input)) continue;
    return failf(ErrorCode::kInvalidArgument, "takes '{}', which is not before it", input->name());
  }
  return {};
}

/// Whether users are those that take a node, for all nodes at once: some have thousands.
Result<void> check_users(const Graph& graph) {
  std::vector<std::pair<const Node*, const Node*>> takes;
  std::vector<std::pair<const Node*, const Node*>> users;
  for (const Node& node : graph.nodes()) {
    for (const Node* const input : node.inputs()) takes.emplace_back(input, &node);
    for (const Node* const user : node.users()) users.emplace_back(&node, user);
  }
  std::sort(takes.begin(), takes.end());
  std::sort(users.begin(), users.end());
  const auto [take, user] = std::mismatch(takes.begin(), takes.end(), users.begin(), users.end());
  if (take == takes.end() && user == users.end()) return {};
  const auto& [node, other] = take == takes.end() ? *user : *take;
  return failf(ErrorCode::kInternal, "graph: '{}' and its user '{}' do not know each other", node->name(),
               other->name());
}

Result<void> check_node(const Node& node, const Earlier& earlier, const GraphHeader& header) {
  TANDEM_TRY(check_inputs(node, earlier));
  if (node.kind() != NodeKind::kCall) return {};
  TANDEM_TRY(check_signature(node));
  return check_shapes(node, header);
}

}  // namespace

Result<void> verify(const Graph& graph) {
  Earlier earlier;
  for (const Node& node : graph.nodes()) {
    if (const auto ok = check_node(node, earlier, graph.header); !ok) {
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
  return check_users(graph);
}

}  // namespace tandem::graph
