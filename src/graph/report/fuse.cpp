#include <array>
#include <tandem/graph/fuse.hpp>
#include <tandem/graph/passes.hpp>

#include "base/format.hpp"
#include "base/try.hpp"
#include "graph/ir/ops.hpp"
#include "graph/passes/coalesced.hpp"
#include "graph/passes/gather_fusion.hpp"
#include "graph/passes/scatter_fusion.hpp"
#include "graph/report/cost.hpp"

namespace tandem::graph {
namespace {

using Kind = CollectiveReport::Kind;

/// A scatter makes one part of `world`; a ring all-reduce receives all other parts twice.
std::int64_t bytes_of(const TensorType& made, Kind kind, int world) {
  constexpr double kMost = 9e18;  // sizes may be anything up to 2^62
  const int count = kind == Kind::kReduceScatter ? world : kind == Kind::kAllReduce ? 2 : 1;
  return static_cast<std::int64_t>(std::min(kMost, received_bytes(made, world, count)));
}

std::optional<Kind> kind_of(std::string_view target) {
  constexpr std::array<std::pair<std::string_view, Kind>, 7> kKinds = {{
      {op::kFunctionalAllGather, Kind::kAllGather},
      {op::kAllGather, Kind::kAllGather},
      {op::kFunctionalReduceScatter, Kind::kReduceScatter},
      {op::kReduceScatter, Kind::kReduceScatter},
      {op::kFunctionalAllReduce, Kind::kAllReduce},
      {op::kAllToAll, Kind::kAllToAll},
      {op::kBroadcast, Kind::kBroadcast},
  }};
  const auto* const found =
      std::find_if(kKinds.begin(), kKinds.end(), [&](const auto& one) { return one.first == target; });
  return found == kKinds.end() ? std::nullopt : std::optional(found->second);
}

/// All collectives of the captured program, not yet judged.
std::vector<CollectiveReport> find_collectives(const Graph& graph) {
  std::vector<CollectiveReport> found;
  const auto add = [&](std::string name, Kind kind, const TensorType& made) {
    found.push_back(
        {.node = std::move(name), .kind = kind, .bytes = bytes_of(made, kind, graph.header.world_size)});
  };
  for (const Node& node : graph.nodes()) {
    if (node.kind() != NodeKind::kCall) continue;
    if (const auto single = single_of(node)) {
      for (std::size_t i = 0; i < node.type().tensors.size(); ++i) {
        if (node.type().tensors[i]) add(coalesced_name(node, i), *kind_of(*single), *node.type().tensors[i]);
      }
    } else if (const auto kind = kind_of(node.target()); kind && node.type().tensor() != nullptr) {
      add(node.name(), *kind, type_of(node));
    }
  }
  return found;
}

/// The nodes of the rewritten program by the captured collective whose work they do; fused ones if there are.
std::map<std::string, Node*, std::less<>> nodes_by_collective(Graph& graph) {
  std::map<std::string, Node*, std::less<>> found;
  for (Node& node : graph.nodes()) {
    for (const std::string& name : node.collectives()) {
      Node*& place = found[name];
      if (place == nullptr || op::is_fused(node.target())) place = &node;
    }
  }
  return found;
}

Refusal refusal_of(Graph& graph, Node& node, const OpaqueOps& opaque, const FuseOptions& options) {
  if (node.is_call_of(op::kAllGather)) return plan_gather(graph, node, {}, opaque, options).why_not;
  if (node.is_call_of(op::kReduceScatter) || node.is_call_of(op::kFunctionalAllReduce))
    return plan_scatter(graph, node, opaque, options).why_not;
  const auto kind = kind_of(node.target());
  const bool has_op = kind && *kind != Kind::kAllToAll && *kind != Kind::kBroadcast;
  return {has_op || single_of(node) ? Reason::kUnusualForm : Reason::kNoFusedOp, nullptr};
}

/// How many captured collectives a node does the work of.
double num_collectives(const Node& node) {
  return static_cast<double>(std::max<std::size_t>(1, node.collectives().size()));
}

void judge(Graph& graph, std::vector<CollectiveReport>& collectives, const FuseOptions& options) {
  const auto nodes = nodes_by_collective(graph);
  const OpaqueOps opaque(graph);
  for (CollectiveReport& one : collectives) {
    const auto found = nodes.find(one.node);
    const std::string name = name_of_coalesced(one.node).value_or(one.node);
    Node* const node = found == nodes.end() ? graph.find(name) : found->second;
    if (node != nullptr && op::is_fused(node->target())) {
      one.fused_into = node->name();
      const int world = graph.header.world_size;
      // Where overlap would cost, the op runs its serial road.
      one.saved_us = std::max(0.0, saved_us(work_of(*node, world), world)) / num_collectives(*node);
      continue;
    }
    const Refusal why =
        node == nullptr ? Refusal{Reason::kNoProduct, nullptr} : refusal_of(graph, *node, opaque, options);
    one.reason = why.reason;
    if (why.node != nullptr)
      one.detail = fmt::format("{} ({}){}{}", why.node->name(), why.node->target(),
                               why.says.empty() ? "" : " ", why.says);
  }
}

}  // namespace

Result<FuseReport> fuse(Graph& graph, const FuseOptions& options) {
  FuseReport report{.collectives = find_collectives(graph), .fused = {}};
  const auto passes = all_passes();  // the last two give collectives PyTorch's form again: judged before
  const auto note = [&](const Pass& pass, const Graph& /*rewritten*/) {
    if (&pass == &passes[passes.size() - 3]) judge(graph, report.collectives, options);
  };
  TANDEM_TRY(run_passes(graph, passes, note, options));
  for (const CollectiveReport& one : report.collectives) {
    if (one.fused_into) ++report.fused[graph.find(*one.fused_into)->target()];
  }
  if (const auto text = complaint(report); options.strict && text)
    return fail(ErrorCode::kUnsupported, *text);
  return report;
}

std::optional<std::string> complaint(const FuseReport& report) {
  std::string reasons;
  bool is_legal_left = false;
  for (const CollectiveReport& one : report.collectives) {
    if (!one.reason) continue;
    is_legal_left = is_legal_left || leaves_legal_pair(*one.reason);
    reasons += fmt::format("{}{} {}{}{}", reasons.empty() ? ": " : "; ", one.node, to_string(*one.reason),
                           one.detail.empty() ? "" : " ", one.detail);
  }
  if (report.fused.empty())
    return "graph: NOTHING WAS FUSED" + (reasons.empty() ? ": there is no collective" : reasons);
  if (is_legal_left) return "graph: a pair that could be fused was left" + reasons;
  return std::nullopt;
}

}  // namespace tandem::graph
