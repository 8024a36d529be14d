#include "graph/passes/scatter_fusion.hpp"

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "graph/ir/ops.hpp"
#include "graph/passes/blocks.hpp"
#include "graph/passes/edits.hpp"
#include "graph/passes/factors.hpp"
#include "graph/passes/row_local.hpp"
#include "graph/report/cost.hpp"

namespace tandem::graph {
namespace {

bool is_one(const Node& node) {
  if (!node.is_call_of(op::kFull)) return false;
  const Argument& value = node.arguments()[1];
  const auto* const number = std::get_if<double>(&value.value);
  return value.integer() == 1 || (number != nullptr && *number == 1.0);
}

bool is_column(const Node& node, std::int64_t rows) {
  const auto& shape = type_of(node).shape;
  return shape.size() == 2 && shape[0] == rows && shape[1] == 1;
}

bool is_row(const Node& node, std::int64_t columns) {
  const auto& shape = type_of(node).shape;
  return shape.size() == 2 && shape[0] == 1 && shape[1] == columns;
}

Node* only_input(Node& node, std::size_t idx) {
  Node* const input = node.arguments()[idx].node();
  return input != nullptr && input->users().size() == 1 ? input : nullptr;
}

/// A product with unit scales that is then multiplied by a column and a row of scales: these are its scales.
///
///   %p = aten._scaled_mm.default(%a, %b, %one, %one, null, null, <torch.bfloat16>)
///   %o = aten.mul.Tensor(%column, %row)
///   %m = aten.mul.Tensor(%p, %o)
///   %c = prims.convert_element_type.default(%m, <torch.bfloat16>)
///
/// One rounding is left of two; where the scales are powers of two both are the same.
std::optional<Product> as_scaled_afterwards(Node& node) {
  if (!node.is_call_of(op::kConvert)) return std::nullopt;
  Node* const times = only_input(node, 0);
  if (times == nullptr || !times->is_call_of(op::kMul)) return std::nullopt;
  for (const std::size_t at : {std::size_t{0}, std::size_t{1}}) {
    Node* const multiplied = only_input(*times, at);
    Node* const outer = times->arguments()[1 - at].node();
    if (multiplied == nullptr || outer == nullptr || !outer->is_call_of(op::kMul)) continue;
    auto product = as_product(*multiplied);
    if (!product || !product->is_scaled() || product->bias != nullptr || product->result_scale != nullptr ||
        !is_one(*product->a_scale) || !is_one(*product->b_scale)) {
      continue;
    }
    const auto& shape = type_of(*multiplied).shape;
    for (const std::size_t first : {std::size_t{0}, std::size_t{1}}) {
      Node* const column = outer->arguments()[first].node();
      Node* const row = outer->arguments()[1 - first].node();
      if (column == nullptr || row == nullptr || !is_column(*column, shape[0]) || !is_row(*row, shape[1]))
        continue;
      product->node = &node;
      product->a_scale = column;
      product->b_scale = row;
      product->out_dtype = node.arguments()[1];
      return product;
    }
  }
  return std::nullopt;
}

/// A plain product that is cast to f32 then, as the backward of autocast does: one that is not rounded
/// before.
std::optional<Product> as_widened(Node& node) {
  if (!node.is_call_of(op::kConvert) || type_of(node).dtype != "float32") return std::nullopt;
  Node* multiplied = only_input(node, 0);
  while (multiplied != nullptr && is_view_op(*multiplied) && keeps_rows(*multiplied))
    multiplied = only_input(*multiplied, 0);
  auto product = multiplied == nullptr ? std::nullopt : as_product(*multiplied);
  if (!product || product->is_scaled() || product->has_factors || product->addend != nullptr ||
      !is_product_type(type_of(*multiplied).dtype)) {
    return std::nullopt;
  }
  product->node = &node;
  product->is_widened = true;
  return product;
}

class Planner {
 public:
  Planner(const Graph& graph, Node& scatter) : graph_(graph), collective_(as_collective(scatter)) {
    fusion_.scatter = fusion_.result = &scatter;
  }

  ScatterPlan run(const OpaqueOps& opaque, const FuseOptions& options) {
    if (fusion_.gives_all() && !find_wait()) return {std::nullopt, {Reason::kUnusualForm, nullptr}};
    if (!is_of_all(collective_, graph_.header)) return {std::nullopt, {Reason::kOtherGroup, nullptr}};
    const auto* const reduction = std::get_if<std::string>(&fusion_.scatter->arguments()[1].value);
    if (reduction == nullptr || (*reduction != "sum" && *reduction != "avg")) {
      return {std::nullopt, {Reason::kReduction, nullptr}};
    }
    if (type_of(*collective_.input).shape.size() < 2) return {std::nullopt, {Reason::kNoProducer, nullptr}};
    fusion_.sum = sum_below_views(*collective_.input, fusion_.scatter);
    if (fusion_.sum != nullptr && !refusal_) collect(*fusion_.sum);
    if (!refusal_) check_types();
    if (refusal_ && is_about_product(refusal_->reason) && !has_product_above(*collective_.input))
      refusal_->reason = Reason::kNoProducer;
    if (refusal_) return {std::nullopt, *refusal_};
    if (!can_name_sizes()) return {std::nullopt, {Reason::kSymbolicSizes, collective_.input}};
    if (const Node* const found = opaque_between(opaque); found != nullptr)
      return {std::nullopt, {Reason::kOpaqueBetween, found}};
    if (options.cost && saved_us(work_of(fusion_, graph_.header.world_size), graph_.header.world_size) <= 0) {
      return {std::nullopt, {Reason::kNotProfitable, nullptr}};
    }
    return {std::move(fusion_), {}};
  }

 private:
  /// Of an all-reduce. Scatters have none: a pass before has merged them.
  bool find_wait() {
    const auto& users = fusion_.scatter->users();
    if (users.size() != 1 || !(*users.begin())->is_call_of(op::kWait)) return false;
    fusion_.result = *users.begin();
    return true;
  }

  /// An op between a product and the scatter that may change what the product reads, or what is summed from
  /// the first product on; or null.
  [[nodiscard]] const Node* opaque_between(const OpaqueOps& opaque) const {
    const Node* first = fusion_.terms[0].computed_at;
    for (const Product& term : fusion_.terms) {
      OpaqueOps::Values values{term.a, term.a_scale, term.addend, term.computed_at};
      for (const Node* const other : term.other_operands()) values.push_back(other);
      if (opaque.between(*term.computed_at, *fusion_.scatter, values))
        return opaque.first_after(*term.computed_at, values);
      if (Graph::is_before(*term.computed_at, *first)) first = term.computed_at;
    }
    const bool is_between = opaque.between(*first, *fusion_.scatter, summed_);
    return is_between ? opaque.first_after(*first, summed_) : nullptr;
  }

  void refuse(Reason reason, const Node* node) { refuse(Refusal{reason, node}); }

  /// What leaves no legal pair goes before what does.
  void refuse(Refusal refusal) {
    refusal.is_legal = refusal.is_legal || leaves_legal_pair(refusal.reason);
    if (!refusal_ || (refusal_->is_legal && !refusal.is_legal)) refusal_ = std::move(refusal);
  }

  /// What is reshaped on the way to `user`; notes whether others use what is on the way.
  Node* sum_below_views(Node& node, const Node* user) {
    Node* below = &node;
    for (;;) {
      for (const Node* const other : below->users()) fusion_.returns_product |= other != user;
      if (!is_view_op(*below)) return below;
      if (!keeps_rows(*below)) {
        refuse(Reason::kReshape, below);
        return nullptr;
      }
      user = below;
      below = below->arguments()[0].node();
    }
  }

  /// The products whose sum a node is.
  void collect(Node& sum) {
    std::vector<std::pair<Node*, const Node*>> open{{&sum, nullptr}};  // with what adds it
    while (!open.empty() && (!refusal_ || refusal_->is_legal)) {
      auto [node, user] = open.back();
      open.pop_back();
      const bool is_top = node == &sum;
      summed_.push_back(node);
      while (!is_top && is_view_op(*node) && keeps_rows(*node) && is_used_once(*node)) {
        user = node;
        node = node->arguments()[0].node();
      }
      if (!is_top && !is_used_once(*node)) {
        if (!as_term(*node) && !is_sum(*node) && row_added_by(*node) == nullptr) {
          refuse_term(*node);
        } else {
          refuse(Reason::kProductUsed, another_user(*node, user));
        }
      } else if (is_sum(*node)) {
        open.emplace_back(node->arguments()[1].node(), node);  // the first operand comes off the stack first
        open.emplace_back(node->arguments()[0].node(), node);
      } else if (Node* const row = row_added_by(*node); row != nullptr && row_ == nullptr) {
        row_ = row;
        row_sum_ = node;
        Node* const left = node->arguments()[0].node();
        open.emplace_back(left == row ? node->arguments()[1].node() : left, node);
      } else if (Node* const addend = add_term(*node); addend != nullptr) {
        open.emplace_back(addend, node);
      }
    }
    if (row_ != nullptr) refuse(Reason::kOpBetween, row_sum_);
  }

  /// The first user of a node that is not `user`.
  static const Node* another_user(const Node& node, const Node* user) {
    const Node* first = nullptr;
    for (const Node* const one : node.users()) {
      if (one != user && (first == nullptr || Graph::is_before(*one, *first))) first = one;
    }
    return first;
  }

  /// Whether a reason says that there is a product, but that something is in its way.
  static bool is_about_product(Reason reason) {
    return reason == Reason::kOpBetween || reason == Reason::kReshape || reason == Reason::kMixedTypes ||
           reason == Reason::kBlocks;
  }

  static bool has_product_above(Node& node) {
    constexpr std::size_t kFarEnough = 100;  // nodes; there may be one farther away
    std::vector<Node*> open{&node};
    std::unordered_set<const Node*> seen{&node};
    for (std::size_t i = 0; i < open.size() && i < kFarEnough; ++i) {
      Node& one = *open[i];
      if (as_product(one) || one.is_call_of(op::kBmm) || op::is_fused(one.target())) return true;
      for (Node* const input : one.inputs()) {
        if (seen.insert(input).second) open.push_back(input);
      }
    }
    return open.size() >= kFarEnough;
  }

  /// The row that a sum adds to each row of its other operand, or null.
  static Node* row_added_by(const Node& sum) {
    if (!sum.is_call_of(op::kAdd) || !sum.named_arguments().empty()) return nullptr;
    const TensorType& made = type_of(sum);
    for (const std::size_t at : {std::size_t{0}, std::size_t{1}}) {
      Node* const row = sum.arguments()[at].node();
      const Node* const other = sum.arguments()[1 - at].node();
      const bool is_whole = other != nullptr && type_of(*other).shape == made.shape && other != row;
      if (row == nullptr || !is_whole || type_of(*other).dtype != made.dtype) continue;
      const TensorType& type = type_of(*row);
      if (!type.shape.empty() && type.shape.back() == made.shape.back() &&
          type.numel() == made.shape.back() && type.dtype == made.dtype) {
        return row;
      }
    }
    return nullptr;
  }

  static bool is_sum(const Node& node) {
    if (!node.is_call_of(op::kAdd) || !node.named_arguments().empty()) return false;
    const Node* const left = node.arguments()[0].node();
    const Node* const right = node.arguments()[1].node();
    return left != nullptr && right != nullptr && left != right &&
           type_of(*left).shape == type_of(node).shape && type_of(*right).shape == type_of(node).shape &&
           type_of(*left).dtype == type_of(node).dtype && type_of(*right).dtype == type_of(node).dtype;
  }

  static bool has_two_types(const Node& sum) {
    const Node* const left = sum.arguments()[0].node();
    const Node* const right = sum.arguments()[1].node();
    return left != nullptr && right != nullptr && type_of(*left).dtype != type_of(*right).dtype;
  }

  static std::optional<Product> as_term(Node& node) {
    auto product = as_product(node);
    if (!product) product = as_scaled_afterwards(node);
    return product ? product : as_widened(node);
  }

  /// Returns what an addmm adds, if that is of the sum too.
  Node* add_term(Node& node) {
    auto product = as_term(node);
    if (!product) {
      refuse_term(node);
      return nullptr;
    }
    if (product->has_factors) {
      refuse(Reason::kFactors, &node);
      return nullptr;
    }
    Node* const addend = product->addend;
    if (addend != nullptr && (addend == product->a || addend == product->b)) {
      refuse(Reason::kProductUsed, &node);
      return nullptr;
    }
    // A row of the sum is one of any of its products that has none.
    if (row_ != nullptr && product->bias == nullptr && product->result_scale == nullptr)
      product->bias = std::exchange(row_, nullptr);
    fusion_.terms.push_back(*std::move(product));
    return addend;
  }

  static bool is_multiple_of_product(const Node& node) {
    const std::vector<Node*> inputs = node.inputs();
    return std::any_of(inputs.begin(), inputs.end(), [&](Node* input) {
      return is_multiple(node, *input) && as_product(*below_views(input)) && is_used_once(*input);
    });
  }

  /// The fused op that gives a term, also where its factors or blocks have been moved behind it; or null.
  static const Node* taker_of(Node& term) {
    Node* given = &term;
    for (;;) {
      given = below_views(given);
      if (const auto factor = as_factor(*given)) {
        given = &factor->source();
      } else if (const std::vector<Block> blocks = blocks_of_cat(*given); !blocks.empty()) {
        given = blocks[0].source;
      } else {
        break;
      }
    }
    const Node* const from = given->is_call_of(op::kGetItem) ? given->arguments()[0].node() : nullptr;
    return from != nullptr && op::is_fused(from->target()) ? from : nullptr;
  }

  void refuse_term(Node& node) {
    if (node.is_given()) return refuse(Reason::kNoProducer, &node);
    if (node.is_call_of(op::kScaledMmByRecipe)) return refuse(Reason::kUnsupportedType, &node);
    if (is_view_op(node)) return refuse(Reason::kReshape, &node);
    if (node.is_call_of(op::kAdd) && has_two_types(node)) return refuse(Reason::kMixedTypes, &node);
    const Node* const from = node.arguments().empty() ? nullptr : node.arguments()[0].node();
    // A wait does nothing itself.
    if (node.is_call_of(op::kWait) && from != nullptr) return refuse(Reason::kOpBetween, from);
    if (const auto factor = as_factor(node)) {  // one that could not be moved
      const Node* user = &node;
      Node* multiplied = &factor->source();
      while (is_used_once(*multiplied) && is_view_op(*multiplied) && keeps_rows(*multiplied)) {
        user = multiplied;
        multiplied = multiplied->arguments()[0].node();
      }
      if (as_product(*below_views(multiplied)) && !is_used_once(*multiplied))
        return refuse(Reason::kProductUsed, another_user(*multiplied, user));
    }
    if (const Node* const taker = taker_of(node); taker != nullptr)
      return refuse(Reason::kProductTaken, taker);
    if (const std::vector<Block> blocks = blocks_of_cat(node); !blocks.empty()) {
      const bool is_legal = are_permuted(blocks) && as_product(*below_views(blocks[0].source));
      return refuse({Reason::kBlocks, &node, "takes " + to_text(blocks), is_legal});
    }
    refuse({.reason = Reason::kOpBetween, .node = &node, .is_legal = is_multiple_of_product(node)});
  }

  /// Whether operands and the product can be reshaped to what is reduced, and to the sum.
  [[nodiscard]] bool can_name_sizes() const {
    const Node& sum = *fusion_.sum;
    return sizes_for(graph_, type_of(*collective_.input).shape, collective_.input, sum) &&
           (!fusion_.returns_product || sizes_for(graph_, type_of(sum).shape, &sum, sum));
  }

  /// All terms have the type of what is reduced: sums are of equal types.
  void check_types() {
    if (!is_product_type(type_of(*collective_.input).dtype)) {
      return refuse(Reason::kUnsupportedType, fusion_.terms[0].node);
    }
  }

  const Graph& graph_;
  Collective collective_;
  ScatterFusion fusion_;
  // A row that the sum adds, until a product has it for its bias, and where it is added.
  Node* row_ = nullptr;
  const Node* row_sum_ = nullptr;
  OpaqueOps::Values summed_;  ///< the products, and what is computed of them
  std::optional<Refusal> refusal_;
};

}  // namespace

bool ScatterFusion::is_scaled() const {
  return std::any_of(terms.begin(), terms.end(),
                     [](const Product& term) { return term.is_scaled() || term.is_widened; });
}

bool ScatterFusion::gives_all() const {
  return scatter->is_call_of(op::kFunctionalAllReduce);
}

ScatterPlan plan_scatter(const Graph& graph, Node& scatter, const OpaqueOps& opaque,
                         const FuseOptions& options) {
  return Planner(graph, scatter).run(opaque, options);
}

}  // namespace tandem::graph
