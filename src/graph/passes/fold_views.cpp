#include <algorithm>
#include <tandem/graph/passes.hpp>

#include "base/try.hpp"
#include "graph/ir/ops.hpp"
#include "graph/passes/blocks.hpp"
#include "graph/passes/edits.hpp"
#include "graph/passes/products.hpp"
#include "graph/passes/row_local.hpp"

namespace tandem::graph {
namespace {

Node* input_of(const Node& node) {
  return node.arguments()[0].node();
}

/// Everybody who uses `node` uses `instead`; then it goes.
Result<void> replace(Graph& graph, Node& node, Node& instead) {
  graph.replace_uses(node, instead);
  return graph.erase(node);
}

/// A view that nobody looks through any more.
Result<void> erase_if_unused(Graph& graph, Node& node) {
  return node.users().empty() ? graph.erase(node) : Result<void>();
}

/// `node` reads what `inner` reads.
Result<void> skip(Graph& graph, Node& node, Node& inner, Argument shape_or_order) {
  graph.set_arguments(node, {{input_of(inner)}, std::move(shape_or_order)}, {});
  return erase_if_unused(graph, inner);
}

Result<void> fold_reshape(Graph& graph, Node& node) {
  // As an aten.reshape: of what lies under a view, a view may not be possible.
  bool is_chain = false;
  while (node.is_call_of(op::kReshape) && is_view_op(*input_of(node)) &&
         !input_of(node)->is_call_of(op::kClone)) {
    is_chain = true;
    TANDEM_TRY(skip(graph, node, *input_of(node), node.arguments()[1]));
  }
  // Sizes that are the same in one call may differ in another.
  const auto* const sizes =
      node.is_call_of(op::kReshape) || node.is_call_of(op::kView) ? node.arguments()[1].list() : nullptr;
  if (sizes != nullptr &&
      std::any_of(sizes->begin(), sizes->end(), [](const Argument& one) { return one.is_symbolic(); })) {
    return {};
  }
  Node& from = *input_of(node);
  if (from.type() == node.type()) return replace(graph, node, from);
  const bool copies = is_chain && type_of(from).shape == type_of(node).shape && type_of(node).is_contiguous();
  if (!copies) return {};
  TANDEM_ASSIGN(Node* const copy, contiguous(graph, node, from));  // a reshape to its own shape keeps strides
  return replace(graph, node, *copy);
}

std::vector<std::size_t> order_of(const Node& permute) {
  std::vector<std::size_t> order;
  for (const Argument& one : *permute.arguments()[1].list()) {
    order.push_back(dim_from_front(*one.integer(), type_of(permute).shape.size()));
  }
  return order;
}

Result<void> fold_permute(Graph& graph, Node& node) {
  Node* const input = input_of(node);
  if (input->is_call_of(op::kPermute)) {
    const std::vector<std::size_t> inner = order_of(*input);
    Argument::List order;
    for (const std::size_t dim : order_of(node)) order.push_back({static_cast<std::int64_t>(inner[dim])});
    TANDEM_TRY(skip(graph, node, *input, {std::move(order)}));
  }
  bool is_identity = true;
  const std::vector<std::size_t> order = order_of(node);
  for (std::size_t d = 0; d < order.size(); ++d) is_identity = is_identity && order[d] == d;
  return is_identity && input_of(node)->type() == node.type() ? replace(graph, node, *input_of(node))
                                                              : Result<void>();
}

/// A slice of all of a tensor.
Result<void> fold_slice(Graph& graph, Node& node) {
  const auto block = as_block(node);
  if (!block || graph.has_symbols()) return {};  // sizes that are the same in one call may differ in another
  return block->source->type() == node.type() ? replace(graph, node, *block->source) : Result<void>();
}

}  // namespace

Result<void> fold_views(Graph& graph) {
  for (auto place = graph.nodes().begin(); place != graph.nodes().end();) {
    Node& node = *place++;  // a node that is folded away takes its place with it
    if (is_view_op(node) && !node.is_call_of(op::kClone)) {
      TANDEM_TRY(fold_reshape(graph, node));
    } else if (node.is_call_of(op::kPermute)) {
      TANDEM_TRY(fold_permute(graph, node));
    } else if (node.is_call_of(op::kSlice)) {
      TANDEM_TRY(fold_slice(graph, node));
    }
  }
  return {};
}

}  // namespace tandem::graph
