#include <algorithm>
#include <tandem/graph/passes.hpp>

#include "base/format.hpp"
#include "base/try.hpp"
#include "graph/ir/ops.hpp"
#include "graph/passes/opaque_ops.hpp"
#include "graph/passes/products.hpp"

namespace tandem::graph {
namespace {

std::int64_t integer_at(const Node& node, std::size_t idx, std::int64_t otherwise) {
  return idx < node.arguments().size() ? node.arguments()[idx].integer().value_or(otherwise) : otherwise;
}

std::size_t dim_at(const Node& node, std::size_t idx, std::size_t num_dims) {
  return dim_from_front(integer_at(node, idx, 0), num_dims);
}

/// The one user of a node, if it is a call of `target`; else null.
Node* only_user(const Node& node, std::string_view target) {
  return node.users().size() == 1 && node.users()[0]->is_call_of(target) ? node.users()[0] : nullptr;
}

/// The nodes between a collective and the node whose value it stands for, in the order of the graph.
struct Ladder {
  std::vector<Node*> nodes;
  Node* result = nullptr;
  std::size_t dim = 0;

  [[nodiscard]] Argument dim_argument() const { return {static_cast<std::int64_t>(dim)}; }
};

/// `split`, the items that it makes in order, each with one user, which is returned by idx.
/// Empty unless there are `count` equal pieces along `dim`.
std::vector<Node*> pieces_of(const Node& split, std::int64_t count) {
  std::vector<Node*> items(static_cast<std::size_t>(count), nullptr);
  if (split.type().tensors.size() != items.size()) return {};
  for (Node* const user : split.users()) {
    if (!user->is_call_of(op::kGetItem)) return {};
    auto& item = items[static_cast<std::size_t>(integer_at(*user, 1, 0))];
    if (item != nullptr) return {};
    item = user;
  }
  if (std::count(items.begin(), items.end(), nullptr) != 0) return {};
  return items;
}

/// Whether a cat has just these parts, in this order.
bool joins(const Node& cat, const std::vector<Node*>& parts) {
  const Argument::List& list = *cat.arguments()[0].list();
  return std::equal(list.begin(), list.end(), parts.begin(), parts.end(),
                    [](const Argument& one, const Node* part) { return one.node() == part; });
}

/// From the wait of a gather of `world` shards to the cat that puts them along another dim.
Ladder gather_ladder(Node& wait, const TensorType& shard, std::int64_t world) {
  Node* const split = only_user(wait, op::kSplit);
  if (split == nullptr || dim_at(*split, 2, shard.shape.size()) != 0 ||
      integer_at(*split, 1, 0) != shard.shape[0]) {
    return {};
  }
  std::vector<Node*> parts = pieces_of(*split, world);
  if (parts.empty()) return {};
  Ladder ladder;
  ladder.nodes.push_back(split);
  ladder.nodes.insert(ladder.nodes.end(), parts.begin(), parts.end());
  const bool is_erased = only_user(*parts[0], op::kViewDType) != nullptr;
  if (is_erased) {
    for (Node*& part : parts) {
      part = only_user(*part, op::kViewDType);
      if (part == nullptr || type_of(*part).shape != shard.shape) return {};
      ladder.nodes.push_back(part);
    }
  }
  Node* const cat = only_user(*parts[0], op::kCat);
  if (cat == nullptr || !joins(*cat, parts)) return {};
  for (const Node* const part : parts) {
    if (only_user(*part, op::kCat) != cat) return {};
  }
  ladder.nodes.push_back(cat);
  ladder.result = cat;
  ladder.dim = dim_at(*cat, 1, shard.shape.size());
  if (!is_erased) return type_of(*cat).dtype == shard.dtype ? ladder : Ladder();
  ladder.result = only_user(*cat, op::kViewDType);
  if (ladder.result == nullptr || type_of(*ladder.result).dtype != shard.dtype) return {};
  ladder.nodes.push_back(ladder.result);
  return ladder;
}

/// Erases nodes from the last to the first; none has other users.
Result<void> erase_all(Graph& graph, const std::vector<Node*>& nodes) {
  for (auto node = nodes.rbegin(); node != nodes.rend(); ++node) TANDEM_TRY(graph.erase(**node));
  return {};
}

/// A gather of bytes that are viewed as floats afterwards gathers the floats:
///
///   %v = view(%a, uint8)
///   %g = all_gather(%v, ...)       ->   %g = all_gather(%a, ...)
///   %f = view(%g, e4m3)
Result<void> gather_without_bytes(Graph& graph, Node& gather) {
  Node* const bytes = gather.arguments()[0].node();
  Node* const viewed = only_user(gather, op::kViewDType);
  if (viewed == nullptr || !bytes->is_call_of(op::kViewDType)) return {};
  Node* const shard = bytes->arguments()[0].node();
  const bool has_one_type = type_of(*shard).dtype == type_of(*viewed).dtype &&
                            type_of(*shard).shape == type_of(*bytes).shape &&
                            type_of(*viewed).shape == type_of(gather).shape;
  if (!has_one_type) return {};
  Argument::List arguments = gather.arguments();
  arguments[0] = {shard};
  TANDEM_ASSIGN(Node* const merged, graph.insert_before(&gather, {.kind = NodeKind::kCall,
                                                                  .name = graph.free_name("all_gather"),
                                                                  .target = std::string(op::kAllGather),
                                                                  .arguments = std::move(arguments),
                                                                  .named_arguments = {},
                                                                  .type = viewed->type(),
                                                                  .collectives = gather.collectives()}));
  graph.replace_uses(*viewed, *merged);
  TANDEM_TRY(erase_all(graph, {&gather, viewed}));
  return bytes->users().empty() ? graph.erase(*bytes) : Result<void>();
}

Result<void> merge_gather(Graph& graph, Node& gather) {
  Node* const wait = only_user(gather, op::kWait);
  if (wait == nullptr) return {};
  Node* const shard = gather.arguments()[0].node();
  const std::int64_t world = integer_at(gather, 1, 1);
  Ladder ladder = gather_ladder(*wait, type_of(*shard), world);
  if (ladder.result == nullptr) ladder = {.nodes = {}, .result = wait, .dim = 0};
  TANDEM_ASSIGN(Node* const merged,
                graph.insert_before(
                    &gather, {.kind = NodeKind::kCall,
                              .name = graph.free_name("all_gather"),
                              .target = std::string(op::kAllGather),
                              .arguments = {{shard}, ladder.dim_argument(), {world}, gather.arguments()[2]},
                              .named_arguments = {},
                              .type = ladder.result->type(),
                              .collectives = {gather.name()}}));
  graph.replace_uses(*ladder.result, *merged);
  TANDEM_TRY(erase_all(graph, ladder.nodes));
  TANDEM_TRY(erase_all(graph, {&gather, wait}));
  return gather_without_bytes(graph, *merged);
}

/// From a split along another dim to the cat that a reduce-scatter takes; `result` is what is split.
Ladder scatter_ladder(Node& cat, std::int64_t world) {
  if (!cat.is_call_of(op::kCat) || cat.users().size() != 1) return {};
  const std::size_t num_dims = type_of(cat).shape.size();
  if (dim_at(cat, 1, num_dims) != 0) return {};
  Node* const first = cat.arguments()[0].list()->front().node();
  if (!first->is_call_of(op::kGetItem)) return {};
  Node* const split = first->arguments()[0].node();
  if (!split->is_call_of(op::kSplit)) return {};
  const std::vector<Node*> parts = pieces_of(*split, world);
  if (parts.empty() || !joins(cat, parts)) return {};
  for (const Node* const part : parts) {
    if (part->users().size() != 1) return {};
  }
  Ladder ladder;
  ladder.result = split->arguments()[0].node();
  ladder.dim = dim_at(*split, 2, num_dims);
  const std::int64_t whole = type_of(*ladder.result).shape[ladder.dim];
  if (whole != integer_at(*split, 1, 0) * world) return {};
  if (type_of(cat).dtype != type_of(*ladder.result).dtype) return {};
  ladder.nodes.push_back(split);
  ladder.nodes.insert(ladder.nodes.end(), parts.begin(), parts.end());
  ladder.nodes.push_back(&cat);
  return ladder;
}

/// The wait of a reduce-scatter whose value goes nowhere else but, at most, to the output.
Node* wait_of(const Node& scatter) {
  Node* wait = nullptr;
  for (Node* const user : scatter.users()) {
    if (user->kind() == NodeKind::kOutput) continue;
    if (wait != nullptr || !user->is_call_of(op::kWait)) return nullptr;
    wait = user;
  }
  return wait;
}

Result<void> merge_scatter(Graph& graph, Node& scatter, const OpaqueOps& opaque) {
  Node* const wait = wait_of(scatter);
  if (wait == nullptr) return {};
  const std::int64_t world = integer_at(scatter, 2, 1);
  Node* const input = scatter.arguments()[0].node();
  Ladder ladder = scatter_ladder(*input, world);
  const bool is_split_late = ladder.result != nullptr && !opaque.between(*ladder.nodes.front(), scatter);
  if (!is_split_late) ladder = {.nodes = {}, .result = input, .dim = 0};
  TANDEM_ASSIGN(Node* const merged, graph.insert_before(&scatter, {.kind = NodeKind::kCall,
                                                                   .name = graph.free_name("reduce_scatter"),
                                                                   .target = std::string(op::kReduceScatter),
                                                                   .arguments = {{ladder.result},
                                                                                 scatter.arguments()[1],
                                                                                 ladder.dim_argument(),
                                                                                 {world},
                                                                                 scatter.arguments()[3]},
                                                                   .named_arguments = {},
                                                                   .type = wait->type(),
                                                                   .collectives = {scatter.name()}}));
  graph.replace_uses(*wait, *merged);
  TANDEM_TRY(graph.erase(*wait));
  graph.replace_uses(scatter, *merged);
  TANDEM_TRY(graph.erase(scatter));
  return erase_all(graph, ladder.nodes);
}

}  // namespace

Result<void> merge_collectives(Graph& graph) {
  const OpaqueOps opaque(graph);
  std::vector<Node*> gathers;
  std::vector<Node*> scatters;
  for (Node& node : graph.nodes()) {
    if (node.is_call_of(op::kFunctionalAllGather)) gathers.push_back(&node);
    if (node.is_call_of(op::kFunctionalReduceScatter)) scatters.push_back(&node);
    const bool is_merged = node.is_call_of(op::kAllGather) || node.is_call_of(op::kReduceScatter);
    if (is_merged && node.collectives().empty()) graph.add_collectives(node, {node.name()});
  }
  for (Node* const gather : gathers) TANDEM_TRY(merge_gather(graph, *gather));
  for (Node* const scatter : scatters) TANDEM_TRY(merge_scatter(graph, *scatter, opaque));
  return {};
}

}  // namespace tandem::graph
