#include <algorithm>
#include <set>
#include <tandem/graph/passes.hpp>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/try.hpp"
#include "graph/ir/ops.hpp"
#include "graph/passes/edits.hpp"
#include "graph/passes/gather_match.hpp"
#include "graph/passes/shard_values.hpp"

namespace tandem::graph {
namespace {

/// Moves values that are computed from a gathered tensor row by row to before the gather.
class Narrowing {
 public:
  Narrowing(Graph& graph, Node& gather, const OpaqueOps& opaque)
      : graph_(graph), gather_(gather), values_(graph, gather, opaque) {}

  /// `node`, computed from the shard and gathered.
  Result<Node*> gathered(Node& node) {
    TANDEM_ASSIGN(Node* const shard, values_.of(node));
    const Collective& collective = values_.collective();
    const std::int64_t last = type_of(node).shape.back();
    TensorType type = contiguous_type(with_last(type_of(gather_).shape, last), type_of(node).dtype);
    TANDEM_ASSIGN(Node* const whole,
                  graph_.insert_before(&node, {.kind = NodeKind::kCall,
                                               .name = graph_.free_name("all_gather"),
                                               .target = std::string(op::kAllGather),
                                               .arguments = {{shard},
                                                             {static_cast<std::int64_t>(collective.dim)},
                                                             {collective.world},
                                                             collective.group},
                                               .named_arguments = gather_.named_arguments(),
                                               .type = {NodeType::Kind::kTensor, {std::move(type)}},
                                               .collectives = gather_.collectives()}));
    return reshaped(graph_, node, *whole, type_of(node).shape);
  }

  /// What is used by others than casts.
  [[nodiscard]] std::vector<Node*> results() const {
    std::vector<Node*> found;
    for (Node* const node : local().nodes()) {
      const auto& users = node->users();
      if (std::any_of(users.begin(), users.end(),
                      [&](const Node* user) { return !local().contains(*user); })) {
        found.push_back(node);
      }
    }
    return found;
  }

  /// Whether gathering it moves fewer bytes than gathering what it is computed from.
  [[nodiscard]] bool is_narrower(const Node& node) const {
    const auto row_bytes = [](const Node& one) { return type_of(one).shape.back() * element_bytes(one); };
    return !local().is_view(node) && row_bytes(node) < row_bytes(gather_);
  }

 private:
  [[nodiscard]] const RowLocal& local() const { return values_.local(); }

  Graph& graph_;
  Node& gather_;
  ShardValues values_;
};

/// The values to gather instead: those that products take; and, if nothing else needs the whole, all that
/// come of it.
Result<void> narrow(Graph& graph, Node& gather, const std::vector<Node*>& wanted, const OpaqueOps& opaque) {
  Narrowing narrowing(graph, gather, opaque);
  std::vector<Node*> targets = wanted;
  const std::vector<Node*> results = narrowing.results();
  const std::unordered_set<const Node*> is_target(targets.begin(), targets.end());
  if (std::all_of(results.begin(), results.end(),
                  [&](Node* node) { return is_target.contains(node) || narrowing.is_narrower(*node); })) {
    targets = results;
  }
  std::vector<Node*> instead;  // all of them first: each looks at the others as they were
  for (Node* const target : targets) {
    TANDEM_ASSIGN(Node* const made, narrowing.gathered(*target));
    instead.push_back(made);
  }
  for (std::size_t i = 0; i < targets.size(); ++i) graph.replace_uses(*targets[i], *instead[i]);
  for (Node* const target : targets) TANDEM_TRY(erase_unused(graph, *target));
  return {};
}

}  // namespace

Result<void> narrow_gathers(Graph& graph) {
  if (graph.has_symbols()) return {};  // what is narrowed before it is gathered has sizes that nobody names
  const OpaqueOps opaque(graph);
  std::vector<std::pair<Node*, std::vector<Node*>>> found;  // gather -> what to gather instead
  std::unordered_map<const Node*, std::size_t> idx_of;      // by gather
  std::set<std::pair<const Node*, const Node*>> seen;
  const auto want = [&](Node* gather, Node* node) {
    if (!seen.emplace(gather, node).second) return;
    const std::size_t idx = idx_of.emplace(gather, found.size()).first->second;
    if (idx == found.size()) found.emplace_back(gather, std::vector<Node*>());
    found[idx].second.push_back(node);
  };
  for (Node& node : graph.nodes()) {
    if (!node.is_call_of(op::kAllGather)) continue;
    for (const GatherUse& use : match_gather(node, graph.header, opaque).uses) {
      if (use.is_operand_cast) want(&node, use.product.a);
      if (use.is_scale_computed) want(use.scale_gather, use.product.a_scale);
    }
  }
  for (const auto& [gather, wanted] : found) TANDEM_TRY(narrow(graph, *gather, wanted, opaque));
  return {};
}

}  // namespace tandem::graph
