#include "graph/passes/factors.hpp"

#include <algorithm>
#include <array>
#include <string_view>

#include "graph/ir/ops.hpp"
#include "graph/passes/edits.hpp"
#include "graph/passes/products.hpp"

namespace tandem::graph {
namespace {

constexpr std::array<std::string_view, 4> kFactorOps = {op::kMul, "aten.mul.Scalar", "aten.div.Tensor",
                                                        "aten.div.Scalar"};

bool is_column_for(const Node& node, const Node& rows) {
  const TensorType* const type = node.type().tensor();
  return type != nullptr && !type->shape.empty() && type->shape == with_last(type_of(rows).shape, 1);
}

}  // namespace

bool is_multiple(const Node& node, const Node& from) {
  const bool is_factor_op =
      std::find(kFactorOps.begin(), kFactorOps.end(), node.target()) != kFactorOps.end();
  if (!is_factor_op || node.type().tensor() == nullptr || from.type().tensor() == nullptr) return false;
  const TensorType& made = type_of(node);
  if (made.shape.empty() || made.shape != type_of(from).shape || made.dtype != type_of(from).dtype)
    return false;
  if (made.dtype == "float16") return false;
  const bool is_first = node.arguments()[0].node() == &from;
  if (!is_first && !node.is_call_of(op::kMul)) return false;
  const Argument& other = node.arguments()[is_first ? 1 : 0];
  if (other.node() == nullptr) return other.list() == nullptr;
  const TensorType* const type = other.node()->type().tensor();
  if (type == nullptr || other.node() == &from) return false;
  const bool is_row =
      !type->shape.empty() && type->numel() == made.shape.back() && type->shape.back() == made.shape.back();
  return type->numel() == 1 || is_row || is_column_for(*other.node(), from);
}

std::optional<Factor> as_factor(Node& node) {
  const bool is_factor_op =
      node.kind() == NodeKind::kCall && node.arguments().size() == 2 &&
      std::find(kFactorOps.begin(), kFactorOps.end(), node.target()) != kFactorOps.end();
  if (!is_factor_op || node.type().tensor() == nullptr) return std::nullopt;
  for (const std::size_t value : {std::size_t{0}, std::size_t{1}}) {
    if (value == 1 && !node.is_call_of(op::kMul)) continue;
    Factor factor{.node = &node, .value = value, .factor = 1 - value};
    Node* const source = node.arguments()[value].node();
    const Argument& other = node.arguments()[factor.factor];
    if (source == nullptr || source->type().tensor() == nullptr) continue;
    const TensorType& from = type_of(*source);
    if (from.shape != type_of(node).shape || from.dtype != type_of(node).dtype) continue;
    factor.column = other.node();
    const bool is_number = factor.column == nullptr && other.list() == nullptr && !other.is_symbolic();
    if (is_number || (factor.column != nullptr && is_column_for(*factor.column, *source))) return factor;
  }
  return std::nullopt;
}

}  // namespace tandem::graph
