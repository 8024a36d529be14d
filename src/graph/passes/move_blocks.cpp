#include <algorithm>
#include <map>
#include <optional>
#include <tandem/graph/passes.hpp>

#include "base/try.hpp"
#include "graph/ir/ops.hpp"
#include "graph/passes/blocks.hpp"
#include "graph/passes/edits.hpp"
#include "graph/passes/opaque_ops.hpp"
#include "graph/passes/products.hpp"
#include "graph/passes/row_local.hpp"

namespace tandem::graph {
namespace {

/// Rows of a tensor in another order: a cat of its blocks along a dim that is not the last.
struct Permuted {
  Node* cat = nullptr;
  std::vector<Block> blocks;
  [[nodiscard]] Node& source() const { return *blocks[0].source; }
};

std::optional<Permuted> as_permuted(Node& node) {
  Permuted permuted{.cat = &node, .blocks = blocks_of_cat(node)};
  const bool has_rows = !permuted.blocks.empty() && are_permuted(permuted.blocks) &&
                        permuted.blocks[0].dim + 1 < type_of(node).shape.size();
  return has_rows ? std::optional(std::move(permuted)) : std::nullopt;
}

bool has_column_of_scales(const Product& product) {
  return product.is_scaled() && type_of(*product.a_scale).numel() != 1;
}

/// Whether it is its source after all.
bool is_in_order(const Permuted& permuted) {
  return permuted.source().type() == permuted.cat->type() &&
         std::is_sorted(permuted.blocks.begin(), permuted.blocks.end(),
                        [](const Block& a, const Block& b) { return a.offset < b.offset; });
}

/// The rows of `node`, which has those of the blocks' source, in the blocks' order.
Result<Node*> with_rows_of(Graph& graph, Node& place, Node& node, const Permuted& permuted) {
  const auto& sizes = type_of(permuted.source()).shape;
  TANDEM_ASSIGN(Node* const rows, reshaped(graph, place, node, with_last(sizes, type_of(node).shape.back())));
  TANDEM_ASSIGN(Node* const cat, joined(graph, place, *rows, permuted.blocks));
  return reshaped(graph, place, *cat, type_of(node).shape);
}

// ---- Behind the products of a gather ----

/// The rows of a gather, permuted, that a product takes; nullopt for other products.
std::optional<Permuted> permuted_operand(const Product& product, const OpaqueOps& opaque) {
  if (product.addend != nullptr || product.has_factors || has_column_of_scales(product)) return std::nullopt;
  auto permuted = as_permuted(*below_views(product.a));
  if (!permuted || !below_views(&permuted->source())->is_call_of(op::kAllGather)) return std::nullopt;
  if (opaque.between(*permuted->cat, *product.node, {permuted->cat, &permuted->source()}))
    return std::nullopt;
  return permuted;
}

Result<void> permute_product(Graph& graph, Node& node, const Product& product, const Permuted& permuted) {
  TANDEM_ASSIGN(Node* const rows, reshaped(graph, node, permuted.source(), type_of(*product.a).shape));
  Argument::List arguments = node.arguments();
  arguments[left_of(node)] = {rows};
  TANDEM_ASSIGN(Node* const made, graph.insert_before(&node, {.kind = NodeKind::kCall,
                                                              .name = graph.free_name(node.name()),
                                                              .target = node.target(),
                                                              .arguments = std::move(arguments),
                                                              .named_arguments = node.named_arguments(),
                                                              .type = node.type()}));
  TANDEM_ASSIGN(Node* const instead, with_rows_of(graph, node, *made, permuted));
  return replace_by(graph, node, *instead, *made);
}

// ---- Before the products of a scatter ----

/// An argument of a product that has the rows of its result.
struct Operand {
  Node* product = nullptr;
  std::size_t idx = 0;
};

/// The terms of a sum that nobody else reads, in the order of the graph; empty where one is no product.
std::vector<Operand> operands_of(Node& sum) {
  std::vector<Operand> found;
  std::vector<Node*> open{&sum};
  while (!open.empty()) {
    Node* node = open.back();
    open.pop_back();
    while ((node == &sum || is_used_once(*node)) && is_view_op(*node) && keeps_rows(*node))
      node = node->arguments()[0].node();
    if (node != &sum && !is_used_once(*node)) return {};  // the blocks read the sum
    if (const auto product = as_product(*node)) {
      if (product->has_factors) return {};
      found.push_back({node, left_of(*node)});
      if (has_column_of_scales(*product)) found.push_back({node, 2});
      if (product->addend != nullptr) open.push_back(product->addend);
      continue;
    }
    if (!node->is_call_of(op::kAdd) || !node->named_arguments().empty()) return {};
    for (const std::size_t at : {std::size_t{0}, std::size_t{1}}) {
      Node* const term = node->arguments()[at].node();
      if (term == nullptr || type_of(*term).shape != type_of(*node).shape) return {};
      open.push_back(term);
    }
  }
  std::sort(found.begin(), found.end(),
            [](const Operand& a, const Operand& b) { return Graph::is_before(*a.product, *b.product); });
  return found;
}

/// Whether the blocks alone read their source, and one scatter reads them.
bool is_for_one_scatter(const Permuted& permuted) {
  const Node* last = permuted.cat;
  for (const Argument& one : *last->arguments()[0].list()) {
    if (!is_used_once(*one.node())) return false;
  }
  while (is_used_once(*last) && is_view_op(*last->users().front()) && keeps_rows(*last->users().front()))
    last = last->users().front();
  return is_used_once(*last) && last->users().front()->is_call_of(op::kReduceScatter);
}

/// Whether nobody but the blocks, or the split that they are items of, reads their source.
bool is_source_of_blocks_alone(const Permuted& permuted) {
  const auto& users = permuted.source().users();
  return std::all_of(users.begin(), users.end(), [&](const Node* user) {
    const auto is_part = [&](const Node* node) {
      return is_used_once(*node) && node->users().front() == permuted.cat;
    };
    if (as_block(*user)) return is_part(user);
    return !user->users().empty() && std::all_of(user->users().begin(), user->users().end(), is_part);
  });
}

Result<void> permute_operands(Graph& graph, const Permuted& permuted) {
  std::map<Node*, Node*> made;  // operands that several products have
  for (const Operand& one : operands_of(permuted.source())) {
    Argument::List arguments = one.product->arguments();
    Node* const operand = arguments[one.idx].node();
    Node*& rows = made[operand];
    if (rows == nullptr) {
      TANDEM_ASSIGN(rows, with_rows_of(graph, *one.product, *operand, permuted));
    }
    arguments[one.idx] = {rows};
    graph.set_arguments(*one.product, std::move(arguments), one.product->named_arguments());
  }
  graph.replace_uses(*permuted.cat, permuted.source());
  return erase_unused(graph, *permuted.cat);
}

}  // namespace

Result<void> move_blocks(Graph& graph) {
  if (graph.has_symbols()) return {};  // the sizes of what is moved have no names
  const OpaqueOps opaque(graph);
  std::vector<Permuted> scattered;
  for (auto place = graph.nodes().begin(); place != graph.nodes().end();) {
    Node& node = *place++;
    if (const auto product = as_product(node)) {
      if (const auto permuted = permuted_operand(*product, opaque)) {
        TANDEM_TRY(permute_product(graph, node, *product, *permuted));
      }
    } else if (auto permuted = as_permuted(node)) {
      const bool can_move = is_for_one_scatter(*permuted) && is_source_of_blocks_alone(*permuted) &&
                            !operands_of(permuted->source()).empty();
      if (is_in_order(*permuted)) {
        graph.replace_uses(node, permuted->source());
        TANDEM_TRY(erase_unused(graph, node));
      } else if (can_move) {
        scattered.push_back(*std::move(permuted));
      }
    }
  }
  for (const Permuted& one : scattered) TANDEM_TRY(permute_operands(graph, one));
  return {};
}

}  // namespace tandem::graph
