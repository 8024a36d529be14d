#include <algorithm>
#include <optional>
#include <tandem/graph/passes.hpp>

#include "base/try.hpp"
#include "graph/ir/ops.hpp"
#include "graph/passes/edits.hpp"
#include "graph/passes/products.hpp"
#include "graph/passes/row_local.hpp"

namespace tandem::graph {
namespace {

/// Whether a value is a gather's, but for views; with `casts`, also but for the ops of casts.
bool is_gathered(const Node& value, bool casts = false) {
  const Node* above = &value;
  while ((is_view_op(*above) || above->is_call_of(op::kPermute) ||
          (casts && is_cast_op(*above) && above->arguments()[0].node() != nullptr)))
    above = above->arguments()[0].node();
  return above->is_call_of(op::kAllGather);
}

/// Whether it is reduced over ranks, but for views and sums.
bool is_reduced(const Node& node) {
  std::vector<const Node*> open{&node};
  constexpr std::size_t kFarEnough = 100;  // nodes; sums are shorter
  for (std::size_t i = 0; i < open.size() && open.size() < kFarEnough; ++i) {
    for (const Node* const user : open[i]->users()) {
      if (user->is_call_of(op::kReduceScatter) || user->is_call_of(op::kFunctionalAllReduce)) return true;
      if (is_view_op(*user) || user->is_call_of(op::kAdd)) open.push_back(user);
    }
  }
  return false;
}

std::vector<std::int64_t> without_first(const Node& node) {
  const auto& shape = type_of(node).shape;
  return {shape.begin() + 1, shape.end()};
}

Result<void> flatten_batch(Graph& graph, Node& node) {
  Argument::List operands;
  for (const Argument& one : node.arguments()) {
    TANDEM_ASSIGN(Node* const matrix, reshaped(graph, node, *one.node(), without_first(*one.node())));
    operands.push_back({matrix});
  }
  TANDEM_ASSIGN(
      Node* const product,
      graph.insert_before(&node, {.kind = NodeKind::kCall,
                                  .name = graph.free_name("mm"),
                                  .target = std::string(op::kMm),
                                  .arguments = std::move(operands),
                                  .named_arguments = {},
                                  .type = {NodeType::Kind::kTensor,
                                           {contiguous_type(without_first(node), type_of(node).dtype)}}}));
  TANDEM_ASSIGN(Node* const instead, reshaped(graph, node, *product, type_of(node).shape));
  graph.replace_uses(node, *instead);
  return graph.erase(node);
}

Result<void> flatten_bias(Graph& graph, Node& node) {
  Argument::List arguments = node.arguments();
  Node& bias = *arguments[0].node();
  TANDEM_ASSIGN(Node* const row, reshaped(graph, node, bias, without_first(bias)));
  arguments[0] = {row};
  graph.set_arguments(node, std::move(arguments), node.named_arguments());
  return {};
}

bool has_bias_of_one_row(const Node& node) {
  if (!node.is_call_of(op::kAddmm)) return false;
  const auto& bias = type_of(*node.arguments()[0].node()).shape;
  const auto& made = type_of(node).shape;
  return bias.size() == 2 && bias[0] == 1 && made[0] != 1 && bias[1] == made[1];
}

/// Whether it multiplies the product or what it adds by other numbers than 1, and could be larger in between.
bool has_numbers(const Node& node) {
  const auto& numbers = node.named_arguments();
  return node.is_call_of(op::kAddmm) && !numbers.empty() && type_of(node).dtype != "float16" &&
         std::all_of(numbers.begin(), numbers.end(), [](const auto& one) {
           return std::holds_alternative<std::int64_t>(one.second.value) ||
                  std::holds_alternative<double>(one.second.value);
         });
}

/// The right operand and what is added, each by its number.
Result<void> multiply_operands(Graph& graph, Node& node) {
  Argument::List arguments = node.arguments();
  for (const auto& [name, number] : node.named_arguments()) {
    Argument& operand = arguments[name == "alpha" ? 2 : 0];
    const bool is_one = number == Argument{std::int64_t{1}} || number == Argument{1.0};
    if (is_one) continue;
    TANDEM_ASSIGN(Node* const multiple, graph.insert_before(&node, {.kind = NodeKind::kCall,
                                                                    .name = graph.free_name("mul"),
                                                                    .target = std::string(op::kMul),
                                                                    .arguments = {operand, number},
                                                                    .named_arguments = {},
                                                                    .type = operand.node()->type()}));
    operand = {multiple};
  }
  graph.set_arguments(node, std::move(arguments), {});
  return {};
}

/// The scale of an operand, where recipes and swizzles name one of the whole operand or of each row (0 and
/// 1); null for other recipes. `first` of the three arguments.
Node* scale_of(const Node& node, std::size_t first) {
  const Argument::List& arguments = node.arguments();
  const auto is_list_of = [&](std::size_t idx, std::int64_t most) {
    const auto entries = arguments[idx].entries();
    return entries.size() <= 1 && std::all_of(entries.begin(), entries.end(), [&](const Argument& one) {
             return one.integer() && *one.integer() >= 0 && *one.integer() <= most;
           });
  };
  const auto scales = arguments[first].entries();
  const bool is_known = scales.size() == 1 && scales[0].node() != nullptr && is_list_of(first + 1, 1) &&
                        arguments[first + 1].entries().size() == 1 && is_list_of(first + 2, 0);
  return is_known ? scales[0].node() : nullptr;
}

/// A product by recipes in the form of _scaled_mm, where that has one; nothing where it has not.
std::optional<Argument::List> by_scales(const Node& node) {
  const Argument::List& arguments = node.arguments();
  if (!node.is_call_of(op::kScaledMmByRecipe) || arguments.size() < 8 || node.type().tensor() == nullptr)
    return std::nullopt;
  const auto at = [&](std::size_t idx) { return idx < arguments.size() ? arguments[idx] : Argument{}; };
  const bool has_dims = at(10).list() != nullptr && !at(10).list()->empty();
  Node* const a_scale = scale_of(node, 2);
  Node* const b_scale = scale_of(node, 5);
  if (a_scale == nullptr || b_scale == nullptr || has_dims || !node.named_arguments().empty())
    return std::nullopt;
  const bool is_fast = at(11) == Argument{true};
  return Argument::List{at(0), at(1), {a_scale}, {b_scale}, at(8), {}, at(9), {is_fast}};
}

Result<void> write_with_scales(Graph& graph, Node& node, Argument::List arguments) {
  TANDEM_ASSIGN(Node* const product, graph.insert_before(&node, {.kind = NodeKind::kCall,
                                                                 .name = graph.free_name("_scaled_mm"),
                                                                 .target = std::string(op::kScaledMm),
                                                                 .arguments = std::move(arguments),
                                                                 .named_arguments = {},
                                                                 .type = node.type()}));
  return replace_by(graph, node, *product, *product);
}

}  // namespace

Result<void> plain_products(Graph& graph) {
  for (auto place = graph.nodes().begin(); place != graph.nodes().end();) {
    Node& node = *place++;
    const bool is_one_of_batch = node.is_call_of(op::kBmm) && type_of(node).shape[0] == 1;
    const auto is_beside_collective = [&] {
      return is_gathered(*node.arguments()[left_of(node)].node()) || is_reduced(node);
    };
    if (has_numbers(node) && is_beside_collective()) {
      TANDEM_TRY(multiply_operands(graph, node));
    }
    if (auto arguments = by_scales(node);
        arguments && (is_gathered(*node.arguments()[0].node(), true) || is_reduced(node))) {
      TANDEM_TRY(write_with_scales(graph, node, *std::move(arguments)));  // the node is gone then
      continue;
    }
    if (has_bias_of_one_row(node)) {
      TANDEM_TRY(flatten_bias(graph, node));
    } else if (is_one_of_batch && !graph.has_symbols() && is_beside_collective()) {
      TANDEM_TRY(flatten_batch(graph, node));  // the node is gone then
    }
  }
  return {};
}

}  // namespace tandem::graph
