#include <tandem/graph/passes.hpp>

#include "base/try.hpp"
#include "graph/ir/ops.hpp"
#include "graph/ir/shards.hpp"
#include "graph/passes/edits.hpp"
#include "graph/passes/gather_match.hpp"
#include "graph/passes/shard_values.hpp"

namespace tandem::graph {
namespace {

Result<Node*> insert_like(Graph& graph, Node& place, std::string_view name, std::string_view target,
                          Argument::List arguments) {
  return graph.insert_before(&place, {.kind = NodeKind::kCall,
                                      .name = graph.free_name(name),
                                      .target = std::string(target),
                                      .arguments = std::move(arguments),
                                      .named_arguments = {},
                                      .type = place.type()});
}

/// The maximum of a rank's part, and the maximum of these.
Result<void> share(Graph& graph, ShardValues& values, Node& maximum) {
  Node& whole = *maximum.arguments()[0].node();
  TANDEM_ASSIGN(Node* const part, values.of(whole));
  TANDEM_ASSIGN(Node* const own, insert_like(graph, maximum, maximum.name() + "_shard", op::kMax, {{part}}));
  TANDEM_ASSIGN(Node* const reduced, insert_like(graph, maximum, "all_reduce", op::kFunctionalAllReduce,
                                                 {{own}, {std::string("max")}, values.collective().group}));
  TANDEM_ASSIGN(Node* const waited, insert_like(graph, maximum, "wait_tensor", op::kWait, {{reduced}}));
  graph.replace_uses(maximum, *waited);
  TANDEM_TRY(graph.erase(maximum));
  return erase_unused(graph, whole);
}

}  // namespace

Result<void> share_maxima(Graph& graph, const FuseOptions& options) {
  if (!options.share_maxima) return {};
  const OpaqueOps opaque(graph);
  std::vector<Node*> gathers;
  for (Node& node : graph.nodes()) {
    // The maximum of a shard is also that of its padding.
    if (!node.is_call_of(op::kAllGather) || gather_size_of(node)) continue;
    if (match_gather(node, graph.header, opaque, Explains::kYes).why_not.reason == Reason::kScaleOfWhole)
      gathers.push_back(&node);
  }
  for (Node* const gather : gathers) {
    ShardValues values(graph, *gather, opaque);
    std::vector<Node*> maxima;
    for (const Node* const node : values.local().nodes()) {
      for (Node* const user : node->users()) {
        if (user->is_call_of(op::kMax)) maxima.push_back(user);
      }
    }
    for (Node* const maximum : maxima) TANDEM_TRY(share(graph, values, *maximum));
  }
  return {};
}

}  // namespace tandem::graph
