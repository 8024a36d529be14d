#include "graph/interpreter/uses.hpp"

#include <algorithm>
#include <cmath>
#include <set>
#include <span>
#include <string_view>

#include "graph/interpreter/products.hpp"
#include "graph/ir/ops.hpp"
#include "graph/passes/row_local.hpp"

namespace tandem::graph::interpreter {
namespace {

namespace op = graph::op;

bool is_any_of(std::string_view target, std::span<const std::string_view> names) {
  return std::find(names.begin(), names.end(), target) != names.end();
}

/// Whether a node hands its input's numbers on, in another order, shape or type.
bool moves(const graph::Node& node) {
  static constexpr std::string_view kMovers[] = {op::kGetItem,
                                                 op::kSplit,
                                                 op::kSplitSizes,
                                                 op::kCat,
                                                 op::kWait,
                                                 op::kPermute,
                                                 op::kViewDType,
                                                 op::kConvert,
                                                 op::kClone,
                                                 "aten.constant_pad_nd.default",
                                                 "aten.expand.default",
                                                 "aten.repeat.default",
                                                 op::kSlice,
                                                 "aten.t.default",
                                                 "aten.transpose.int"};
  return is_any_of(node.target(), kMovers) || graph::is_view_op(node);
}

bool is_gather(const graph::Node& node) {
  return node.is_call_of(op::kFunctionalAllGather) || node.is_call_of(op::kAllGather);
}

const std::vector<std::int64_t>* shape_of(const graph::Node* node) {
  const graph::TensorType* const type = node == nullptr ? nullptr : node->type().tensor();
  return type == nullptr ? nullptr : &type->shape;
}

/// Whether the ranks' products are added up.
bool is_summed(const graph::Node& product, std::set<const graph::Node*>& seen) {
  static constexpr std::string_view kReductions[] = {op::kFunctionalReduceScatter, op::kReduceScatter,
                                                     op::kFunctionalAllReduce};
  if (!seen.insert(&product).second) return false;
  return std::any_of(product.users().begin(), product.users().end(), [&](const graph::Node* user) {
    return is_any_of(user->target(), kReductions) ||
           ((moves(*user) || user->is_call_of(op::kAdd)) && is_summed(*user, seen));
  });
}

/// The terms of one sum of a product of which `value` is the right operand, or a convolution's weight; 0 if
/// it is neither.
std::int64_t terms_of(const graph::Node& user, const graph::Node& value) {
  const std::vector<std::int64_t>& shape = *shape_of(&value);
  struct Place {
    std::string_view target;
    std::size_t right;
  };
  static constexpr Place kProducts[] = {
      {op::kMm, 1}, {"aten.bmm.default", 1}, {op::kAddmm, 2}, {"aten.baddbmm.default", 2}};
  for (const Place& product : kProducts) {
    if (user.is_call_of(product.target) && node_at(user, product.right) == &value && shape.size() >= 2) {
      return shape[shape.size() - 2];
    }
  }
  if (user.is_call_of("aten.convolution.default") && node_at(user, 1) == &value && shape.size() >= 2) {
    return shape[0] == 0 ? 0 : value.type().tensor()->numel() / shape[0];
  }
  return 0;
}

/// The size of the dim in which `user` takes `value` as indices, or nothing.
std::optional<std::int64_t> bound_of(const graph::Node& user, const graph::Node& value) {
  static constexpr std::string_view kAlongADim[] = {"aten.gather.default", "aten.scatter.src",
                                                    "aten.scatter.value", "aten.scatter_add.default",
                                                    "aten.index_select.default"};
  const auto* const table = shape_of(node_at(user, 0));
  if (table == nullptr || table->empty()) return std::nullopt;
  if (user.is_call_of("aten.embedding.default") && node_at(user, 1) == &value) return table->front();
  if (is_any_of(user.target(), kAlongADim) && node_at(user, 2) == &value) {
    const std::int64_t dim = user.arguments()[1].integer().value_or(0);
    const auto num_dims = static_cast<std::int64_t>(table->size());
    if (dim >= -num_dims && dim < num_dims)
      return (*table)[static_cast<std::size_t>((dim + num_dims) % num_dims)];
  }
  if (!user.target().starts_with("aten.index") || user.arguments().size() < 2) return std::nullopt;
  const auto lists = user.arguments()[1].entries();
  for (std::size_t d = 0; d < std::min(lists.size(), table->size()); ++d) {
    if (lists[d].node() == &value) return (*table)[d];
  }
  return std::nullopt;
}

/// The first scale of an operand of a scaled product.
const graph::Node* scale_of(const graph::Node& product, std::size_t side) {
  if (product.is_call_of(op::kScaledMm)) return node_at(product, side + 2);
  const std::size_t place = 2 + 3 * side;
  const auto& arguments = product.arguments();
  const bool has_scale = place < arguments.size() && !arguments[place].entries().empty();
  return has_scale ? arguments[place].entries().front().node() : nullptr;
}

/// Whether indices stay such, or are replaced where they are none.
bool keeps_indices(const graph::Node& user) {
  static constexpr std::string_view kNames[] = {"aten.where.self", "aten.sub.Tensor", "aten.clamp.default",
                                                op::kMul};
  return is_any_of(user.target(), kNames);
}

class Follower {
 public:
  Follower(Use& use, int world_size) : use_(use), world_size_(world_size) {}
  void follow(const graph::Node& value) {
    if (!seen_.insert(&value).second || value.type().tensor() == nullptr) return;
    const auto dtype = graph::dtype_of(value.type().tensor()->dtype);
    const bool is_whole = dtype && !is_floating(*dtype);
    for (const graph::Node* user : value.users()) {
      if (user->kind() != graph::NodeKind::kCall) continue;
      if (is_gather(*user)) use_.is_gathered = true;
      if (is_gather(*user) || moves(*user) || (is_whole && keeps_indices(*user))) follow(*user);
      note(*user, value);
    }
  }

 private:
  void note(const graph::Node& user, const graph::Node& value) {
    static constexpr std::string_view kOfPositive[] = {"aten.clamp_min.default", "aten.log.default",
                                                       "aten.log2.default", "aten.rsqrt.default",
                                                       "aten.sqrt.default"};
    if (user.is_call_of("aten.reciprocal.default")) use_.is_scale = true;
    const bool divides = user.is_call_of("aten.div.Tensor") && node_at(user, 1) == &value;
    if (divides || is_any_of(user.target(), kOfPositive)) use_.is_positive = true;
    if (const auto bound = bound_of(user, value)) {
      use_.index_bound = std::min(*bound, use_.index_bound.value_or(*bound));
    }
    if (const std::int64_t terms = terms_of(user, value); terms > 0) {
      std::set<const graph::Node*> seen;
      const double ranks = is_summed(user, seen) ? world_size_ : 1;
      sum_of_logs_ += std::log(static_cast<double>(terms) * ranks);
      use_.num_terms = std::exp(sum_of_logs_ / ++num_products_);
    }
    if (!user.is_call_of(op::kScaledMm) && !user.is_call_of(op::kScaledMmByRecipe)) return;
    for (const std::size_t side : {0U, 1U}) {
      if (scale_of(user, side) == &value) use_.is_inverse = true;
      if (node_at(user, side) == &value) use_.inverses.push_back(scale_of(user, side));
    }
  }

  Use& use_;
  int world_size_;
  std::set<const graph::Node*> seen_;
  double sum_of_logs_ = 0;
  int num_products_ = 0;
};

}  // namespace

Use use_of(const graph::Node& placeholder, int world_size) {
  Use use;
  Follower(use, world_size).follow(placeholder);
  return use;
}

const graph::Node* node_at(const graph::Node& node, std::size_t idx) {
  return idx < node.arguments().size() ? node.arguments()[idx].node() : nullptr;
}

}  // namespace tandem::graph::interpreter
