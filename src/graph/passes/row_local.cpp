#include "graph/passes/row_local.hpp"

#include <algorithm>
#include <array>
#include <string_view>

#include "graph/ir/ops.hpp"
#include "graph/passes/products.hpp"
#include "graph/passes/replicated.hpp"

namespace tandem::graph {
namespace {

/// The ops of casts. Others are element-wise too, but belong to the program's work, not to how it multiplies.
constexpr std::array<std::string_view, 13> kCastOps = {"aten.abs.default",
                                                       "aten.add.Tensor",
                                                       "aten.clamp_max.default",
                                                       "aten.clamp_min.default",
                                                       "aten.div.Tensor",
                                                       "aten.exp2.default",
                                                       "aten.floor.default",
                                                       "aten.log2.default",
                                                       "aten.mul.Tensor",
                                                       "aten.pow.Tensor_Scalar",
                                                       "aten.reciprocal.default",
                                                       "aten.sub.Tensor",
                                                       "prims.convert_element_type.default"};

struct InOrder {
  bool operator()(const Node* a, const Node* b) const { return Graph::is_before(*a, *b); }
};

bool is_row_maximum(const Node& node) {
  if (!node.is_call_of("aten.amax.default") || node.arguments().size() != 3) return false;
  const auto num_dims = static_cast<std::int64_t>(type_of(*node.arguments()[0].node()).shape.size());
  const auto* const dims = node.arguments()[1].list();
  const auto* const keep = std::get_if<bool>(&node.arguments()[2].value);
  if (dims == nullptr || dims->size() != 1 || keep == nullptr || !*keep) return false;
  const std::int64_t dim = *(*dims)[0].integer();
  return dim == -1 || dim == num_dims - 1;
}

}  // namespace

bool is_cast_op(const Node& node) {
  return std::find(kCastOps.begin(), kCastOps.end(), node.target()) != kCastOps.end();
}

bool is_view_op(const Node& node) {
  constexpr std::array kViews = {op::kReshape, op::kView,      op::kUnsafeView,
                                 op::kSqueeze, op::kUnsqueeze, op::kClone};
  return node.kind() == NodeKind::kCall &&
         std::find(kViews.begin(), kViews.end(), node.target()) != kViews.end();
}

bool keeps_rows(const Node& view) {
  const auto& from = type_of(*view.arguments()[0].node()).shape;
  const auto& to = type_of(view).shape;
  return !from.empty() && !to.empty() && from.back() == to.back();
}

Node* below_views(Node* node) {
  while (is_view_op(*node) && keeps_rows(*node)) node = node->arguments()[0].node();
  return node;
}

RowLocal::RowLocal(Node& gather, const GraphHeader& header, const OpaqueOps& opaque)
    : header_(header), has_whole_rows_(as_collective(gather).dim + 1 != type_of(gather).shape.size()) {
  const Node* const shard = as_collective(gather).input;
  std::set<Node*, InOrder> open{&gather};
  while (!open.empty()) {
    Node* const node = *open.begin();
    open.erase(open.begin());
    if (node != &gather && !follows(*node)) continue;
    nodes_.push_back(node);
    is_view_[node] = node == &gather || (is_view_op(*node) && is_view(*node->arguments()[0].node()));
    for (Node* const user : node->users()) {
      const bool is_in_reach = !opaque.between(gather, *user, {shard, &gather, node});
      if (user->kind() == NodeKind::kCall && is_in_reach) open.insert(user);
    }
  }
}

/// All inputs that come before it and belong to the set are in it already.
bool RowLocal::follows(const Node& node) const {
  if (is_view_op(node)) return keeps_rows(node);
  if (is_row_maximum(node)) return has_whole_rows_;
  return is_element_wise(node);
}

bool RowLocal::is_element_wise(const Node& node) const {
  if (!is_cast_op(node) || node.type().tensor() == nullptr) return false;
  const Argument::List& arguments = node.arguments();
  return std::all_of(arguments.begin(), arguments.end(),
                     [&](const Argument& argument) { return fits(argument, node); });
}

/// A number; a tensor of the set with the rows of the result; or one that is the same for all rows and ranks.
bool RowLocal::fits(const Argument& argument, const Node& node) const {
  const Node* const input = argument.node();
  if (input == nullptr) return argument.list() == nullptr;
  const auto& made = type_of(node).shape;
  const auto& shape = type_of(*input).shape;
  const auto rows_of = [](const std::vector<std::int64_t>& one) {
    return std::vector(one.begin(), one.end() - 1);
  };
  if (contains(*input)) return !made.empty() && !shape.empty() && rows_of(shape) == rows_of(made);
  const bool is_one_row = std::all_of(shape.begin(), shape.empty() ? shape.end() : shape.end() - 1,
                                      [](auto size) { return size == 1; });
  if (!is_one_row || Dependence(*nodes_[0]).of(*input) || !is_replicated(*input, header_)) return false;
  return shape.size() <= type_of(*nodes_[0]).shape.size() &&
         (has_whole_rows_ || shape.empty() || shape.back() == 1);
}

}  // namespace tandem::graph
