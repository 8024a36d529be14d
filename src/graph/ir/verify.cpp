#include <tandem/graph/verify.hpp>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/format.hpp"
#include "base/try.hpp"
#include "graph/ir/shape_rules.hpp"
#include "graph/ir/signatures.hpp"
#include "graph/ir/visit.hpp"

namespace tandem::graph {
namespace {

/// A node, and another one that takes it.
using Use = std::pair<const Node*, const Node*>;

/// Notes what a node takes, as often as it does.
Result<void> check_inputs(const Node& node, std::vector<Use>& takes) {
  const Node* later = nullptr;
  const auto note = [&](const Argument& argument) {
    if (later == nullptr && !Graph::is_before(*argument.node(), node)) later = argument.node();
    takes.emplace_back(argument.node(), &node);
  };
  for (const Argument& argument : node.arguments()) for_each_node(argument, note);
  for (const auto& [name, argument] : node.named_arguments()) for_each_node(argument, note);
  if (later == nullptr) return {};
  return failf(ErrorCode::kInvalidArgument, "takes '{}', which is not before it", later->name());
}

/// Whether users are those that take a node, for all nodes at once: some have thousands. A node of another
/// graph has no users here.
Result<void> check_users(const Graph& graph, std::vector<Use> takes) {
  std::vector<Use> users;
  users.reserve(takes.size());
  for (const Node& node : graph.nodes()) {
    for (const Node* const user : node.users()) users.emplace_back(&node, user);
  }
  std::sort(takes.begin(), takes.end());
  takes.erase(std::unique(takes.begin(), takes.end()), takes.end());
  std::sort(users.begin(), users.end());
  const auto [take, user] = std::mismatch(takes.begin(), takes.end(), users.begin(), users.end());
  if (take == takes.end() && user == users.end()) return {};
  const auto& [node, other] = take == takes.end() ? *user : *take;
  return failf(ErrorCode::kInternal, "graph: '{}' and its user '{}' do not know each other", node->name(),
               other->name());
}

Result<void> check_node(const Node& node, std::vector<Use>& takes, const GraphHeader& header) {
  TANDEM_TRY(check_inputs(node, takes));
  if (node.kind() != NodeKind::kCall) return {};
  TANDEM_TRY(check_signature(node));
  return check_shapes(node, header);
}

}  // namespace

Result<void> verify(const Graph& graph) {
  std::vector<Use> takes;
  takes.reserve(2 * graph.nodes().size());
  std::size_t place = 0;
  for (const Node& node : graph.nodes()) {
    if (const auto ok = check_node(node, takes, graph.header); !ok) {
      return failf(ErrorCode::kInvalidArgument, "graph: node {} '{}' ({}): {}", place, node.name(),
                   node.target(), ok.error().text());
    }
    const bool is_last = &node == &graph.nodes().back();
    if ((node.kind() == NodeKind::kOutput) != is_last) {
      return failf(ErrorCode::kInvalidArgument, "graph: node {} '{}': need one output, as the last node",
                   place, node.name());
    }
    ++place;
  }
  if (place == 0) return fail(ErrorCode::kInvalidArgument, "graph: no nodes, need an output");
  return check_users(graph, std::move(takes));
}

}  // namespace tandem::graph
