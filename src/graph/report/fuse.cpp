#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <tandem/graph/fuse.hpp>
#include <tandem/graph/passes.hpp>
#include <unordered_map>
#include <unordered_set>

#include "base/format.hpp"
#include "base/try.hpp"
#include "graph/ir/groups.hpp"
#include "graph/ir/ops.hpp"
#include "graph/passes/blocks.hpp"
#include "graph/passes/coalesced.hpp"
#include "graph/passes/gather_fusion.hpp"
#include "graph/passes/row_local.hpp"
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

/// The nodes of the rewritten program by the captured collective whose work they do.
std::map<std::string, std::vector<Node*>, std::less<>> nodes_by_collective(Graph& graph) {
  std::map<std::string, std::vector<Node*>, std::less<>> found;
  for (Node& node : graph.nodes()) {
    for (const std::string& name : node.collectives()) found[name].push_back(&node);
  }
  return found;
}

/// The last fused one, or else the first; null if there are none.
Node* most_fused(const std::vector<Node*>& nodes) {
  const auto fused = std::find_if(nodes.rbegin(), nodes.rend(),
                                  [](const Node* node) { return op::is_fused(node->target()); });
  if (fused != nodes.rend()) return *fused;
  return nodes.empty() ? nullptr : nodes[0];
}

std::string text_of(const Node& node) {
  const bool is_placeholder = node.kind() == NodeKind::kPlaceholder;
  return fmt::format("{} ({})", node.name(), is_placeholder ? "placeholder" : node.target());
}

bool is_fused_gather(const Node& node) {
  return node.is_call_of(op::kFusedAllGatherMatmul) || node.is_call_of(op::kFusedAllGatherScaledMatmul);
}

/// What a gather, or a fused one beside its products, gives.
std::vector<const Node*> gathered_by(const Node& node) {
  if (!is_fused_gather(node)) return {&node};
  const auto num_products = static_cast<std::int64_t>(node.arguments()[1].entries().size());
  std::vector<const Node*> found;
  for (const Node* const item : node.users()) {
    if (!item->is_call_of(op::kGetItem)) continue;
    const std::int64_t idx = *item->arguments()[1].integer();
    if (idx == 0 || idx > num_products) found.push_back(item);
  }
  return found;
}

/// Whether what `node` makes of `from` is still that tensor: seen, cut or cast.
bool passes_on(const Node& from, const Node& node) {
  if (is_view_op(node) || as_block(node) || node.is_call_of("aten.amax.default")) return true;
  constexpr std::array kOps = {op::kPermute, op::kCat, op::kSplit, op::kSplitSizes, op::kMax};
  if (std::find(kOps.begin(), kOps.end(), node.target()) != kOps.end()) return true;
  return is_cast_op(node) && type_of(node).shape == type_of(from).shape;
}

/// Counts the products of a gather's fused ops, and names the others that read what it gathers.
void count_products(const std::vector<Node*>& nodes, CollectiveReport& report) {
  std::vector<const Node*> open;
  for (const Node* const node : nodes) {
    if (is_fused_gather(*node)) report.num_products += std::ssize(node->arguments()[1].entries());
    const std::vector<const Node*> gathered = gathered_by(*node);
    open.insert(open.end(), gathered.begin(), gathered.end());
  }
  std::unordered_set<const Node*> seen(open.begin(), open.end());
  std::set<std::pair<const Node*, std::size_t>> scattered;  // by fused op, and its number
  std::vector<const Node*> products;
  for (std::size_t i = 0; i < open.size(); ++i) {
    for (Node* const user : open[i]->users()) {
      const std::vector<Product> of_user = products_scattered_by(*user);
      for (std::size_t j = 0; j < of_user.size(); ++j) {
        const bool is_read = of_user[j].a == open[i] || of_user[j].b == open[i];
        if (is_read && scattered.insert({user, j}).second) products.push_back(user);
      }
      if (!of_user.empty() || !seen.insert(user).second) continue;
      if (as_product(*user) || user->is_call_of(op::kBmm)) {
        products.push_back(user);
      } else if (user->kind() == NodeKind::kCall && passes_on(*open[i], *user)) {
        open.push_back(user);
      }
    }
  }
  std::sort(products.begin(), products.end(),
            [](const Node* a, const Node* b) { return Graph::is_before(*a, *b); });
  for (const Node* const product : products) report.products_left.push_back(text_of(*product));
}

Refusal refusal_of(Graph& graph, Node& node, const OpaqueOps& opaque, const FuseOptions& options) {
  if (node.is_call_of(op::kAllGather))
    return plan_gather(graph, node, {}, opaque, options, Explains::kYes).why_not;
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
  // Thousands of collectives may have become one op: it is looked at once.
  std::map<std::pair<Kind, std::vector<Node*>>, const CollectiveReport*> judged;
  for (CollectiveReport& one : collectives) {
    const auto found = nodes.find(one.node);
    const std::string name = name_of_coalesced(one.node).value_or(one.node);
    Node* const node = found == nodes.end() ? graph.find(name) : most_fused(found->second);
    if (node != nullptr && op::is_fused(node->target())) {
      if (found != nodes.end()) {
        const auto [known, is_new] = judged.try_emplace({one.kind, found->second}, &one);
        if (!is_new) {
          const CollectiveReport& same = *known->second;
          one.fused_into = same.fused_into;
          one.saved_us = same.saved_us;
          one.num_products = same.num_products;
          one.products_left = same.products_left;
          continue;
        }
      }
      one.fused_into = node->name();
      const int world = graph.header.world_size;
      // Where overlap would cost, the op runs its serial road.
      one.saved_us = std::max(0.0, saved_us(work_of(*node, world), world)) / num_collectives(*node);
      if (one.kind == Kind::kAllGather) {
        count_products(found->second, one);
      } else {
        one.num_products = std::ssize(node->arguments()[1].entries());
      }
      continue;
    }
    const Refusal why =
        node == nullptr ? Refusal{Reason::kNoProduct, nullptr} : refusal_of(graph, *node, opaque, options);
    one.reason = why.reason;
    if (why.reason == Reason::kOtherGroup) {
      if (const auto* const group = group_of(*node)) one.detail = fmt::format("'{}'", *group);
    }
    one.is_legal = why.is_legal || leaves_legal_pair(why.reason);
    if (why.node != nullptr) one.detail = text_of(*why.node) + (why.says.empty() ? "" : " ") + why.says;
  }
}

/// Collectives that products hide although they are not fused.
void note_beside(Graph& graph, std::vector<CollectiveReport>& collectives) {
  std::unordered_map<std::string_view, std::string_view> beside;  // by the collective
  for (const Node& node : graph.nodes()) {
    if (!op::is_low_contention(node.target())) continue;
    for (const std::string& name : node.collectives()) beside[name] = node.name();
  }
  for (CollectiveReport& one : collectives) {
    const auto found = beside.find(one.node);
    if (!one.fused_into && found != beside.end()) one.runs_beside = found->second;
  }
}

}  // namespace

Result<FuseReport> fuse(Graph& graph, const FuseOptions& options) {
  FuseReport report{.collectives = find_collectives(graph), .fused = {}};
  const auto note = [&](const Pass& pass, const Graph& /*rewritten*/) {
    // The passes behind it give collectives PyTorch's form again.
    if (pass.name == "clean-up") judge(graph, report.collectives, options);
  };
  TANDEM_TRY(run_passes(graph, all_passes(), note, options));
  if (options.low_contention) note_beside(graph, report.collectives);
  for (const CollectiveReport& one : report.collectives) {
    if (one.fused_into) ++report.fused[graph.find(*one.fused_into)->target()];
  }
  if (const auto text = complaint(report); options.strict && text)
    return fail(ErrorCode::kUnsupported, *text);
  return report;
}

std::optional<std::string> complaint(const FuseReport& report) {
  const bool is_nothing_fused = report.fused.empty();
  std::string reasons;
  for (const CollectiveReport& one : report.collectives) {
    if (!one.reason || !(is_nothing_fused || one.is_legal)) continue;
    reasons += fmt::format("{}{} {}{}{}", reasons.empty() ? ": " : "; ", one.node, to_string(*one.reason),
                           one.detail.empty() ? "" : " ", one.detail);
  }
  if (is_nothing_fused)
    return "graph: NOTHING WAS FUSED" + (reasons.empty() ? ": there is no collective" : reasons);
  if (!reasons.empty()) return "graph: a pair that could be fused was left" + reasons;
  return std::nullopt;
}

}  // namespace tandem::graph
