#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <tandem/graph/passes.hpp>
#include <unordered_set>

#include "base/format.hpp"
#include "base/try.hpp"
#include "graph/ir/ops.hpp"
#include "graph/ir/shards.hpp"
#include "graph/passes/blocks.hpp"
#include "graph/passes/opaque_ops.hpp"
#include "graph/passes/products.hpp"
#include "graph/passes/row_local.hpp"

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
  return node.users().size() == 1 && node.users().front()->is_call_of(target) ? node.users().front()
                                                                              : nullptr;
}

/// The nodes between a collective and the nodes whose value it stands for, each before its users.
struct Ladder {
  std::vector<Node*> nodes;
  std::vector<Node*> results;
  std::size_t dim = 0;
  /// The blocks of the merged collective's result, or of its input, for those in another order than they
  /// travel in; by result.
  std::map<const Node*, std::vector<Block>> orders = {};

  [[nodiscard]] Argument dim_argument() const { return {static_cast<std::int64_t>(dim)}; }
};

/// Whether a product takes it as left operand, seen by views that keep rows.
bool is_multiplied(const Node& node) {
  std::vector<const Node*> open{&node};
  while (!open.empty()) {
    const Node* const one = open.back();
    open.pop_back();
    for (Node* const user : one->users()) {
      if (user->kind() != NodeKind::kCall) continue;
      const auto product = as_product(*user);
      if (product && product->a == one) return true;
      if (!product && is_view_op(*user) && keeps_rows(*user)) open.push_back(user);
    }
  }
  return false;
}

/// The size of a ladder's pieces by name, where it is symbolic.
NamedArguments pieces_of(const Ladder& ladder) {
  for (const Node* const node : ladder.nodes) {
    const Argument::List& arguments = node->arguments();
    const std::size_t at = node->is_call_of(op::kSlice) ? 3 : 1;  // the end of the first slice
    const bool has_size =
        node->is_call_of(op::kSplit) || (node->is_call_of(op::kSlice) && as_block(*node)->offset == 0);
    if (has_size && arguments.size() > at && arguments[at].is_symbolic())
      return {{std::string(kPiece), arguments[at]}};
  }
  return {};
}

/// Whether `node` comes behind all that these arguments name.
bool is_behind(const Node& node, const NamedArguments& arguments) {
  return std::all_of(arguments.begin(), arguments.end(), [&](const auto& one) {
    return one.second.node() == nullptr || Graph::is_before(*one.second.node(), node);
  });
}

/// Nodes, each once, in the order in which they came.
class DistinctNodes {
 public:
  void add(Node* node) {
    if (known_.insert(node).second) nodes_.push_back(node);
  }
  [[nodiscard]] bool contains(const Node* node) const { return known_.contains(node); }
  [[nodiscard]] const std::vector<Node*>& nodes() const { return nodes_; }

 private:
  std::vector<Node*> nodes_;
  std::unordered_set<const Node*> known_;
};

/// From the wait of a gather of `world` shards to the cats that put them along another dim, in any order.
class GatherLadder {
 public:
  GatherLadder(Node& wait, const TensorType& shard, std::int64_t world)
      : wait_(wait), shard_(shard), world_(static_cast<std::size_t>(world)) {}

  /// Empty unless all that is made of the wait ends in such cats, along one dim.
  Ladder find() {
    if (shard_.shape.empty() || shard_.shape[0] == 0 || !find_parts()) return {};
    for (Node* const part : parts_.nodes()) {
      if (!add_cats_of(*part)) return {};
    }
    for (Node* const cat : cats_.nodes()) {
      if (!add_result_of(*cat)) return {};
    }
    for (const DistinctNodes* const some : {&splits_, &parts_, &bytes_, &cats_, &results_})
      ladder_.nodes.insert(ladder_.nodes.end(), some->nodes().begin(), some->nodes().end());
    ladder_.results = (results_.nodes().empty() ? cats_ : results_).nodes();
    return ladder_;
  }

 private:
  /// All that takes blocks of the wait.
  bool find_parts() {
    for (Node* const user : wait_.users()) {
      if (as_block(*user)) {
        parts_.add(user);
        continue;
      }
      for (Node* const item : user->users()) {
        const auto block = as_block(*item);
        if (!block || block->source != &wait_) return false;
        parts_.add(item);
      }
      if (user->users().empty()) return false;
      splits_.add(user);
    }
    return !parts_.nodes().empty();
  }

  /// Those that join a part, or its bytes.
  bool add_cats_of(Node& part) {
    for (Node* const user : part.users()) {
      if (user->is_call_of(op::kCat)) {
        cats_.add(user);
        continue;
      }
      if (!user->is_call_of(op::kViewDType) || type_of(*user).shape != shard_.shape) return false;
      bytes_.add(user);
      for (Node* const cat : user->users()) {
        if (!cat->is_call_of(op::kCat)) return false;
        cats_.add(cat);
      }
    }
    return !part.users().empty();
  }

  /// Notes the order of a cat of all shards, along another dim than they travel in; false for other blocks.
  bool note_order(const Node& cat, const std::vector<Block>& blocks, std::size_t dim) {
    const bool has_shards = std::all_of(blocks.begin(), blocks.end(), [&](const Block& block) {
      return block.length == shard_.shape[0] && block.offset % shard_.shape[0] == 0;
    });
    if (dim == 0 || !bytes_.nodes().empty() || !has_shards || !are_permuted(blocks) || !is_multiplied(cat))
      return false;
    std::vector<Block>& order = ladder_.orders[&cat];
    for (const Block& block : blocks) {
      const std::int64_t length = shard_.shape[dim];
      order.push_back({.dim = dim, .offset = block.offset / block.length * length, .length = length});
    }
    return true;
  }

  /// A cat of all shards.
  bool add_result_of(Node& cat) {
    std::vector<Node*> parts;
    for (const Argument& one : *cat.arguments()[0].list()) {
      Node* const part = one.node();
      const bool is_bytes = bytes_.contains(part);
      parts.push_back(is_bytes ? part->arguments()[0].node() : part);
    }
    const std::vector<Block> blocks = blocks_of(parts);
    const bool is_of_wait =
        parts.size() == world_ && !blocks.empty() && blocks[0].source == &wait_ && blocks[0].dim == 0;
    const std::size_t dim = dim_at(cat, 1, shard_.shape.size());
    if (!is_of_wait || (&cat != cats_.nodes()[0] && dim != ladder_.dim)) return false;
    if (!are_whole_in_order(blocks, shard_.shape[0]) && !note_order(cat, blocks, dim)) return false;
    ladder_.dim = dim;
    if (bytes_.nodes().empty()) return type_of(cat).dtype == shard_.dtype;
    Node* const result = only_user(cat, op::kViewDType);
    if (result == nullptr || type_of(*result).dtype != shard_.dtype) return false;
    results_.add(result);
    return true;
  }

  Node& wait_;
  const TensorType& shard_;
  const std::size_t world_;
  DistinctNodes splits_;
  DistinctNodes parts_;
  DistinctNodes bytes_;  ///< of parts, where these are joined
  DistinctNodes cats_;
  DistinctNodes results_;  ///< of cats of bytes
  Ladder ladder_;
};

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
                                                                  .named_arguments = gather.named_arguments(),
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
  Ladder ladder = GatherLadder(*wait, type_of(*shard), world).find();
  if (ladder.results.empty() || !is_behind(gather, pieces_of(ladder)))
    ladder = {.nodes = {}, .results = {wait}, .dim = 0};
  TANDEM_ASSIGN(Node* const merged,
                graph.insert_before(
                    &gather, {.kind = NodeKind::kCall,
                              .name = graph.free_name("all_gather"),
                              .target = std::string(op::kAllGather),
                              .arguments = {{shard}, ladder.dim_argument(), {world}, gather.arguments()[2]},
                              .named_arguments = pieces_of(ladder),
                              .type = ladder.results[0]->type(),
                              .collectives = names_of(gather)}));
  for (Node* const result : ladder.results) {
    const auto order = ladder.orders.find(result);
    Node* instead = merged;
    if (order != ladder.orders.end()) {
      TANDEM_ASSIGN(instead, joined(graph, gather, *merged, order->second));
    }
    graph.replace_uses(*result, *instead);
  }
  TANDEM_TRY(erase_all(graph, ladder.nodes));
  TANDEM_TRY(erase_all(graph, {&gather, wait}));
  return gather_without_bytes(graph, *merged);
}

/// From what is taken apart along another dim to the cat that a reduce-scatter takes; the one result is what
/// was taken apart.
Ladder scatter_ladder(Node& cat, std::int64_t world) {
  if (!cat.is_call_of(op::kCat) || cat.users().size() != 1) return {};
  if (dim_at(cat, 1, type_of(cat).shape.size()) != 0) return {};
  std::vector<Node*> parts;
  for (const Argument& one : *cat.arguments()[0].list()) {
    parts.push_back(one.node());
    if (parts.back()->users().size() != 1) return {};
  }
  const std::vector<Block> blocks = blocks_of(parts);
  if (blocks.size() != static_cast<std::size_t>(world)) return {};
  const Block& first = blocks[0];
  const bool is_in_order = are_whole_in_order(blocks, first.length);
  Node& made = *below_views(first.source);
  const bool is_sum = as_product(made).has_value() || made.is_call_of(op::kAdd);
  const bool is_permuted = first.dim != 0 && is_sum && are_permuted(blocks) &&
                           std::all_of(blocks.begin(), blocks.end(),
                                       [&](const Block& block) { return block.length == first.length; });
  if (first.length == 0 || (!is_in_order && !is_permuted)) return {};
  if (type_of(cat).dtype != type_of(*first.source).dtype) return {};
  Ladder ladder{.nodes = {}, .results = {first.source}, .dim = first.dim};
  if (!is_in_order) ladder.orders[first.source] = blocks;
  for (Node* const part : parts) {
    Node* const from = part->arguments()[0].node();
    if (from == first.source) continue;
    // A split all of whose items are joined.
    if (from->users().size() != parts.size()) return {};
    if (ladder.nodes.empty()) ladder.nodes.push_back(from);
    if (ladder.nodes[0] != from) return {};
  }
  ladder.nodes.insert(ladder.nodes.end(), parts.begin(), parts.end());
  ladder.nodes.push_back(&cat);
  return ladder;
}

/// A collective's result is the same whoever waits for it: all take that of the first wait.
Result<void> merge_waits(Graph& graph, Node& collective) {
  Node* first = nullptr;
  const std::vector<Node*> users(collective.users().begin(), collective.users().end());
  for (Node* const user : users) {
    if (!user->is_call_of(op::kWait)) continue;
    if (first == nullptr || Graph::is_before(*user, *first)) first = user;
  }
  for (Node* const user : users) {
    if (user == first || !user->is_call_of(op::kWait)) continue;
    graph.replace_uses(*user, *first);
    TANDEM_TRY(graph.erase(*user));
  }
  return {};
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
  const bool is_split_late =
      !ladder.results.empty() &&
      !opaque.between(*ladder.nodes.front(), scatter, {ladder.results[0], ladder.nodes.back()});
  if (!is_split_late) ladder = {.nodes = {}, .results = {input}, .dim = 0};
  Node* whole = ladder.results[0];
  if (const auto order = ladder.orders.find(whole); order != ladder.orders.end()) {
    TANDEM_ASSIGN(whole, joined(graph, scatter, *whole, order->second));
  }
  TANDEM_ASSIGN(Node* const merged, graph.insert_before(&scatter, {.kind = NodeKind::kCall,
                                                                   .name = graph.free_name("reduce_scatter"),
                                                                   .target = std::string(op::kReduceScatter),
                                                                   .arguments = {{whole},
                                                                                 scatter.arguments()[1],
                                                                                 ladder.dim_argument(),
                                                                                 {world},
                                                                                 scatter.arguments()[3]},
                                                                   .named_arguments = pieces_of(ladder),
                                                                   .type = wait->type(),
                                                                   .collectives = names_of(scatter)}));
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
  std::vector<Node*> reductions;
  for (Node& node : graph.nodes()) {
    if (node.is_call_of(op::kFunctionalAllGather)) gathers.push_back(&node);
    if (node.is_call_of(op::kFunctionalReduceScatter)) scatters.push_back(&node);
    if (node.is_call_of(op::kFunctionalAllReduce)) reductions.push_back(&node);
    const bool is_merged = node.is_call_of(op::kAllGather) || node.is_call_of(op::kReduceScatter);
    if (is_merged && node.collectives().empty()) graph.add_collectives(node, {node.name()});
  }
  for (const auto& collectives : {gathers, scatters, reductions}) {
    for (Node* const one : collectives) TANDEM_TRY(merge_waits(graph, *one));
  }
  for (Node* const gather : gathers) TANDEM_TRY(merge_gather(graph, *gather));
  for (Node* const scatter : scatters) TANDEM_TRY(merge_scatter(graph, *scatter, opaque));
  return {};
}

}  // namespace tandem::graph
