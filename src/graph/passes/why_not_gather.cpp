#include "graph/passes/why_not_gather.hpp"

#include <algorithm>
#include <array>
#include <set>

#include "graph/ir/ops.hpp"
#include "graph/passes/blocks.hpp"

namespace tandem::graph {
namespace {

/// What happened to a value between the gather and where it is.
struct Way {
  const Node* node = nullptr;
  const Node* between = nullptr;  ///< the first op that is neither a view nor part of a cast
  const Node* reshape = nullptr;  ///< the first that mixes rows with columns
  const Node* cast = nullptr;     ///< the first op that is part of a cast
  bool is_transposed = false;
  bool has_maximum = false;  ///< of all of it
};

/// From the nearest to a fusion to the farthest; others are farther.
constexpr std::array kNearestFirst = {
    Reason::kDependentOperand,  Reason::kScaleOfWhole,    Reason::kFactors,
    Reason::kOpaqueBetween,     Reason::kUnsupportedType, Reason::kReshape,
    Reason::kTransposedOperand, Reason::kRightOperand,    Reason::kBiasOperand,
    Reason::kBatchedProduct,    Reason::kBlocks,          Reason::kOpBetween};

/// What takes blocks, or the split of which they are items.
bool is_of_blocks(const Node& node) {
  return as_block(node).has_value() ||
         std::any_of(node.users().begin(), node.users().end(), [&](const Node* user) {
           const auto block = user->is_call_of(op::kGetItem) ? as_block(*user) : std::nullopt;
           return block && block->source != &node && user->arguments()[0].node() == &node;
         });
}

/// Names the blocks: those of the cat that puts them together, or the one that is taken.
Refusal refusal_of_blocks(const Node& node) {
  std::vector<const Node*> open{&node};
  for (std::size_t i = 0; i < open.size(); ++i) {
    for (const Node* const user : open[i]->users()) {
      const std::vector<Block> blocks = blocks_of_cat(*user);
      if (!blocks.empty()) return {Reason::kBlocks, user, "takes " + to_text(blocks)};
      if (i == 0 && !as_block(node)) open.push_back(user);
    }
  }
  for (const Node* const one : open) {
    if (const auto block = as_block(*one))
      return {Reason::kBlocks, one, "takes " + to_text(std::vector{*block})};
  }
  return {Reason::kBlocks, &node};
}

bool is_nearer(Reason a, Reason b) {
  const auto place_of = [](Reason reason) {
    return std::find(kNearestFirst.begin(), kNearestFirst.end(), reason);
  };
  return place_of(a) < place_of(b);
}

class Search {
 public:
  Search(Node& gather, const RowLocal& local, const OpaqueOps& opaque)
      : gather_(gather), local_(local), opaque_(opaque), dependence_(gather) {}

  Refusal run() {
    std::vector<Way> open{{.node = &gather_}};
    std::set<const Node*> seen{&gather_};
    constexpr std::size_t kFarEnough = 500;  // nodes; what is farther away is no longer about this gather
    while (!open.empty() && seen.size() < kFarEnough) {
      const Way way = open.back();
      open.pop_back();
      for (Node* const user : way.node->users()) {
        if (const auto product = as_product(*user)) {
          note(judge(way, *product), way, *user);
        } else if (user->is_call_of(op::kBmm) && way.between == nullptr) {
          note(Reason::kBatchedProduct, way, *user);
        } else if (user->kind() == NodeKind::kCall && seen.insert(user).second) {
          open.push_back(beyond(way, *user));
        }
      }
    }
    return best_;
  }

 private:
  static Way beyond(Way way, const Node& user) {
    way.node = &user;
    if (user.is_call_of(op::kMax)) {
      way.has_maximum = true;
    } else if (user.is_call_of(op::kPermute) && moves_last_dim(user)) {
      way.is_transposed = !way.is_transposed;
    } else if (is_view_op(user)) {
      if (!keeps_rows(user) && way.reshape == nullptr) way.reshape = &user;
    } else if (is_cast(user)) {
      if (way.cast == nullptr) way.cast = &user;
    } else if (way.between == nullptr) {
      way.between = &user;
    }
    return way;
  }

  static bool is_cast(const Node& user) {
    return is_cast_op(user) || user.is_call_of("aten.amax.default") || user.is_call_of(op::kGetItem);
  }

  static bool moves_last_dim(const Node& permute) {
    const Argument::List& order = *permute.arguments()[1].list();
    const auto num_dims = static_cast<std::int64_t>(order.size());
    return !order.empty() && order.back().integer() != num_dims - 1 && order.back().integer() != -1;
  }

  Reason judge(const Way& way, const Product& product) {
    if (way.between != nullptr) return is_of_blocks(*way.between) ? Reason::kBlocks : Reason::kOpBetween;
    if (product.a != way.node) {
      if (product.b == way.node) return way.has_maximum ? Reason::kNoProduct : Reason::kRightOperand;
      return product.bias == way.node ? Reason::kBiasOperand : Reason::kNoProduct;
    }
    if (opaque_.between(gather_, *product.node, values_of(product, gather_))) return Reason::kOpaqueBetween;
    if (way.has_maximum) return Reason::kScaleOfWhole;
    if (way.is_transposed) return Reason::kTransposedOperand;
    if (way.reshape != nullptr) return Reason::kReshape;
    if (product.has_factors) return Reason::kFactors;
    for (const Node* const other : product.other_operands()) {
      if (dependence_.of(*other)) return Reason::kDependentOperand;
    }
    if (product.is_scaled() && dependence_.of(*product.a_scale) && !local_.contains(*product.a_scale)) {
      return Reason::kScaleOfWhole;
    }
    return local_.is_view(*way.node) ? Reason::kUnsupportedType : Reason::kOpBetween;
  }

  void note(Reason reason, const Way& way, Node& product) {
    if (!is_nearer(reason, best_.reason)) return;
    const Node* culprit = &product;
    if (reason == Reason::kOpBetween) culprit = way.between != nullptr ? way.between : way.cast;
    if (reason == Reason::kReshape) culprit = way.reshape;
    if (reason == Reason::kOpaqueBetween)
      culprit = opaque_.first_after(gather_, values_of(*as_product(product), gather_));
    best_ = {reason, culprit};
    if (reason == Reason::kBlocks) best_ = refusal_of_blocks(*way.between);
  }

  const Node& gather_;
  const RowLocal& local_;
  const OpaqueOps& opaque_;
  Dependence dependence_;
  Refusal best_{Reason::kNoProduct, nullptr};
};

}  // namespace

Refusal why_not_gather(Node& gather, const RowLocal& local, const OpaqueOps& opaque) {
  return Search(gather, local, opaque).run();
}

}  // namespace tandem::graph
