#include <algorithm>
#include <tandem/graph/passes.hpp>

#include "base/try.hpp"
#include "graph/ir/ops.hpp"
#include "graph/passes/edits.hpp"
#include "graph/passes/factors.hpp"
#include "graph/passes/opaque_ops.hpp"
#include "graph/passes/products.hpp"
#include "graph/passes/row_local.hpp"

namespace tandem::graph {
namespace {

/// Moves factors to where they are in no collective's way.
class Moving {
 public:
  explicit Moving(Graph& graph) : graph_(graph), opaque_(graph) {}

  // ---- Gathers ----

  /// A gather of which all take the same multiple gathers that multiple.
  Result<void> multiply_shard(Node& gather) {
    Node* const only = is_used_once(gather) ? gather.users().front() : nullptr;
    const auto factor = only == nullptr ? std::nullopt : as_factor(*only);
    if (!factor || factor->column != nullptr || &factor->source() != &gather) return {};
    Node* const shard = gather.arguments()[0].node();
    TANDEM_ASSIGN(Node* const multiple, applied(gather, *factor, *shard, nullptr));
    Argument::List arguments = gather.arguments();
    arguments[0] = {multiple};
    graph_.set_arguments(gather, std::move(arguments), gather.named_arguments());
    graph_.replace_uses(*factor->node, gather);
    return graph_.erase(*factor->node);
  }

  /// A product of a multiple of what is gathered is the multiple of a product.
  Result<void> multiply_product(Node& node) {
    const auto product = as_product(node);
    if (!product || product->is_scaled() || product->bias != nullptr || product->addend != nullptr) return {};
    Node* const left = below_views(product->a);
    const auto factor = as_factor(*left);
    if (!factor || !can_be_larger(*left)) return {};
    if (!below_views(&factor->source())->is_call_of(op::kAllGather)) return {};
    if (opaque_.between(*left, node, {left, &factor->source(), factor->column})) return {};
    if (product->b == product->a || (graph_.has_symbols() && left != product->a)) return {};
    TANDEM_ASSIGN(Node* const rows, reshaped(graph_, node, factor->source(), type_of(*product->a).shape));
    TANDEM_ASSIGN(Node* const made, with_argument(node, node, left_of(node), *rows));
    TANDEM_ASSIGN(Node* const column, column_for(node, *factor, *made));
    TANDEM_ASSIGN(Node* const multiple, applied(node, *factor, *made, column));
    return replace_by(graph_, node, *multiple, *made);
  }

  // ---- Scatters and all-reduces ----

  /// A multiple of all that is summed is the multiple of the sum over ranks. Returns the collective that is
  /// there then.
  Result<Node*> multiply_result(Node& collective) {
    Node* const result = result_of(collective);
    Node& input = *collective.arguments()[0].node();
    const auto factor = as_factor(*below_views(&input));
    const bool is_linear = collective.arguments()[1] == Argument{std::string("sum")} ||
                           collective.arguments()[1] == Argument{std::string("avg")};
    if (!factor || factor->column != nullptr || !can_be_larger(input) || result == nullptr || !is_linear ||
        terms_of(factor->source()).empty() ||
        opaque_.between(*factor->node, collective, {factor->node, &factor->source()}) ||
        (graph_.has_symbols() && factor->node != &input)) {
      return nullptr;
    }
    TANDEM_ASSIGN(Node* const whole, reshaped(graph_, *result, factor->source(), type_of(input).shape));
    TANDEM_ASSIGN(Node* const made, with_argument(*result, collective, 0, *whole));
    Node* instead = made;
    if (result != &collective) {
      graph_.add_collectives(*made, names_of(collective));
      TANDEM_ASSIGN(instead, with_argument(*result, *result, 0, *made));
    }
    TANDEM_ASSIGN(Node* const multiple, applied(*result, *factor, *instead, nullptr));
    graph_.replace_uses(*result, *multiple);
    TANDEM_TRY(erase_unused(graph_, *result));
    return made;
  }

  /// A multiple of one term of a sum is a product whose left operand, or its scale, is multiplied.
  Result<void> multiply_terms(Node& collective) {
    for (Node* const term : terms_of(*below_views(collective.arguments()[0].node()))) {
      const auto factor = as_factor(*term);
      if (factor) TANDEM_TRY(multiply_operand(*factor));
    }
    return {};
  }

 private:
  /// Whether values that were multiplied before may be larger in between: f16 ends at 65504.
  static bool can_be_larger(const Node& node) { return type_of(node).dtype != "float16"; }

  /// What is waited for; null where that is not one node.
  static Node* result_of(Node& collective) {
    if (collective.is_call_of(op::kReduceScatter)) return &collective;
    const bool has_one_wait = is_used_once(collective) && collective.users().front()->is_call_of(op::kWait);
    return has_one_wait ? collective.users().front() : nullptr;
  }

  /// The products, and the multiples of products, whose sum a node is; empty where it is not such a sum, or
  /// where something else reads a term.
  [[nodiscard]] std::vector<Node*> terms_of(Node& sum) const {
    std::vector<Node*> found;
    std::vector<Node*> open{&sum};
    while (!open.empty()) {
      Node* node = open.back();
      open.pop_back();
      const bool is_top = node == &sum;
      while (is_view_op(*node) && keeps_rows(*node) && (is_top || is_used_once(*node)))
        node = node->arguments()[0].node();
      if (!is_top && !is_used_once(*node)) return {};
      if (const auto product = as_product(*node)) {
        found.push_back(node);
        if (product->addend != nullptr) open.push_back(product->addend);
      } else if (const auto factor = as_factor(*node)) {
        if (!can_multiply_operand(*factor)) return {};
        found.push_back(node);
      } else if (node->is_call_of(op::kConvert)) {
        open.push_back(node->arguments()[0].node());
      } else if (!add_addends(*node, open)) {
        return {};
      }
    }
    return found;
  }

  /// Those of a sum, but for a row that it adds.
  static bool add_addends(const Node& node, std::vector<Node*>& open) {
    if (!node.is_call_of(op::kAdd) || !node.named_arguments().empty()) return false;
    for (const Argument& one : node.arguments()) {
      Node* const addend = one.node();
      if (addend == nullptr || addend->type().tensor() == nullptr) return false;
      const bool is_row = type_of(*addend).numel() == type_of(node).shape.back();
      if (type_of(*addend).shape == type_of(node).shape) {
        open.push_back(addend);
      } else if (!is_row) {
        return false;
      }
    }
    return true;
  }

  [[nodiscard]] bool can_multiply_operand(const Factor& factor) const {
    Node* node = &factor.source();
    while (is_view_op(*node) && keeps_rows(*node) && is_used_once(*node)) node = node->arguments()[0].node();
    const auto product = as_product(*node);
    const bool is_plain = product && product->bias == nullptr && product->addend == nullptr &&
                          product->result_scale == nullptr && !product->has_factors;
    if (!is_plain || !is_used_once(*node) ||
        opaque_.between(*node, *factor.node,
                        {node, product->a, product->b, product->a_scale, product->b_scale}))
      return false;
    const bool has_number = factor.column == nullptr;
    return has_number || (!product->is_scaled() && !graph_.has_symbols());
  }

  Result<void> multiply_operand(const Factor& factor) {
    Node& node = *below_views(&factor.source());
    const std::size_t idx = as_product(node)->is_scaled() ? 2 : left_of(node);
    Node& operand = *node.arguments()[idx].node();
    TANDEM_ASSIGN(Node* const column, column_for(*factor.node, factor, operand));
    TANDEM_ASSIGN(Node* const multiple, applied(*factor.node, factor, operand, column));
    TANDEM_ASSIGN(Node* const made, with_argument(*factor.node, node, idx, *multiple));
    TANDEM_ASSIGN(Node* const instead, reshaped(graph_, *factor.node, *made, type_of(*factor.node).shape,
                                                factor.node->arguments()[factor.value].node()));
    const std::string name = node.name();
    graph_.replace_uses(*factor.node, *instead);
    TANDEM_TRY(erase_unused(graph_, *factor.node));
    return graph_.find(name) == nullptr ? graph_.rename(*made, name) : Result<void>();
  }

  /// `factor` of another value, before `place`.
  Result<Node*> applied(Node& place, const Factor& factor, Node& value, Node* column) {
    Argument::List arguments = factor.node->arguments();
    arguments[factor.value] = {&value};
    if (column != nullptr) arguments[factor.factor] = {column};
    TensorType type = contiguous_type(type_of(value).shape, type_of(value).dtype);
    return graph_.insert_before(&place, {.kind = NodeKind::kCall,
                                         .name = graph_.free_name(factor.node->name()),
                                         .target = factor.node->target(),
                                         .arguments = std::move(arguments),
                                         .named_arguments = factor.node->named_arguments(),
                                         .type = {NodeType::Kind::kTensor, {std::move(type)}}});
  }

  /// The factor's column for the rows of a matrix; null where it has none.
  Result<Node*> column_for(Node& place, const Factor& factor, const Node& matrix) {
    if (factor.column == nullptr) return nullptr;
    return reshaped(graph_, place, *factor.column, with_last(type_of(matrix).shape, 1));
  }

  /// The same call with another node for one argument.
  Result<Node*> with_argument(Node& place, const Node& node, std::size_t idx, Node& argument) {
    Argument::List arguments = node.arguments();
    arguments[idx] = {&argument};
    return graph_.insert_before(&place, {.kind = NodeKind::kCall,
                                         .name = graph_.free_name(node.name()),
                                         .target = node.target(),
                                         .arguments = std::move(arguments),
                                         .named_arguments = node.named_arguments(),
                                         .type = node.type(),
                                         .collectives = node.collectives()});
  }

  Graph& graph_;
  OpaqueOps opaque_;
};

}  // namespace

Result<void> move_factors(Graph& graph) {
  std::vector<Node*> gathers;
  std::vector<Node*> products;
  std::vector<Node*> reductions;
  for (Node& node : graph.nodes()) {
    if (node.is_call_of(op::kAllGather)) gathers.push_back(&node);
    if (as_product(node)) products.push_back(&node);
    if (node.is_call_of(op::kReduceScatter) || node.is_call_of(op::kFunctionalAllReduce))
      reductions.push_back(&node);
  }
  Moving moving(graph);
  for (Node* const gather : gathers) TANDEM_TRY(moving.multiply_shard(*gather));
  for (Node* const product : products) TANDEM_TRY(moving.multiply_product(*product));
  for (Node* collective : reductions) {
    for (Node* last = collective; last != nullptr;) {
      collective = last;
      TANDEM_ASSIGN(last, moving.multiply_result(*collective));
    }
    TANDEM_TRY(moving.multiply_terms(*collective));
  }
  return {};
}

}  // namespace tandem::graph
