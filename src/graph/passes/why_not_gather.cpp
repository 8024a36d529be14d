#include "graph/passes/why_not_gather.hpp"

#include <algorithm>
#include <array>
#include <deque>
#include <functional>
#include <numeric>
#include <set>
#include <span>
#include <tuple>

#include "graph/ir/ops.hpp"
#include "graph/passes/blocks.hpp"
#include "graph/passes/factors.hpp"

namespace tandem::graph {
namespace {

std::int64_t product_of(std::span<const std::int64_t> sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), std::int64_t{1}, std::multiplies<>());
}

/// Where a dim of what is gathered lies in a value of the same elements: between `outer` and `inner` of them.
/// A reshape changes nothing about it.
struct DimPlace {
  std::int64_t outer = 1;
  std::int64_t size = 1;
  std::int64_t inner = 1;

  DimPlace(const std::vector<std::int64_t>& shape, std::size_t dim)
      : outer(product_of({shape.data(), dim})),
        size(shape[dim]),
        inner(product_of(std::span(shape).subspan(dim + 1))) {}

  /// Whether it still is part of one dim when a permute has moved that.
  bool follow(const std::vector<std::int64_t>& shape, const std::vector<std::size_t>& order) {
    for (std::size_t to = 0; to < order.size(); ++to) {
      const DimPlace from(shape, order[to]);
      const bool is_inside = size > 0 && from.inner <= inner && inner * size <= from.inner * from.size;
      if (!is_inside) continue;
      std::vector<std::int64_t> after;
      for (const std::size_t one : order) after.push_back(shape[one]);
      const DimPlace moved(after, to);
      outer = moved.outer * (outer / from.outer);
      inner = moved.inner * (inner / from.inner);
      return true;
    }
    return false;
  }
  /// Whether it is among the columns of a matrix.
  [[nodiscard]] bool is_in_columns(std::int64_t columns) const { return inner * size <= columns; }
  [[nodiscard]] bool is_in_rows(std::int64_t columns) const { return inner >= columns; }
  /// Whether each of `world` parts of it has whole rows.
  [[nodiscard]] bool has_parts_in_rows(std::int64_t columns, std::int64_t world) const {
    return columns > 0 && world > 0 && inner * (size / world) % columns == 0;
  }
};

/// What happened to a value between the gather and where it is.
struct Way {
  const Node* node = nullptr;
  DimPlace gathered;  ///< the gathered dim
  DimPlace last;
  const Node* between = nullptr;  ///< the first op that is none of the following
  const Node* reshape = nullptr;  ///< the first that mixes rows with columns
  const Node* cast = nullptr;     ///< the first op that is part of a cast
  const Node* factor = nullptr;   ///< the first multiplication of all, or of each row, by another number
  const Node* permute = nullptr;  ///< the first
  const Node* blocks = nullptr;   ///< the first op that takes blocks
  const Node* cat = nullptr;      ///< the first that puts blocks together
  const Node* maximum = nullptr;  ///< of all of it
  bool are_blocks_of_rows = true;
  bool is_far = false;  ///< an op has made a tensor of another shape, and is no view
  bool is_cut = false;  ///< a dim is no longer where it is said to be

  using State =
      std::tuple<const Node*, bool, bool, bool, bool, bool, bool, bool, bool, std::int64_t, std::int64_t>;
  [[nodiscard]] State state() const {
    return {node,
            between != nullptr,
            reshape != nullptr,
            cast != nullptr,
            factor != nullptr,
            blocks != nullptr,
            maximum != nullptr,
            is_far,
            is_cut,
            gathered.inner,
            last.inner};
  }
  /// The first op that does more than move elements, or takes some of them.
  [[nodiscard]] const Node* op() const {
    for (const Node* const one : {between, cast, factor, blocks}) {
      if (one != nullptr) return one;
    }
    return permute;
  }
};

/// A reason, and how near to a fusion it is.
struct Judgement {
  Reason reason = Reason::kNoProduct;
  const Node* node = nullptr;
  bool is_legal = false;
  bool is_far = false;
  std::string says = {};

  /// What could be fused comes first of all, and what is far from its product last.
  [[nodiscard]] std::pair<bool, std::size_t> distance() const {
    constexpr std::array kNearestFirst = {
        Reason::kFactors,           Reason::kDependentOperand, Reason::kScaleOfWhole,
        Reason::kProductTaken,      Reason::kOpaqueBetween,    Reason::kBlocks,
        Reason::kUnsupportedType,   Reason::kReshape,          Reason::kOpBetween,
        Reason::kTransposedOperand, Reason::kRightOperand,     Reason::kBiasOperand,
        Reason::kBatchedProduct};
    const auto* const place = std::find(kNearestFirst.begin(), kNearestFirst.end(), reason);
    const auto idx = static_cast<std::size_t>(place - kNearestFirst.begin());
    if (place == kNearestFirst.end()) return {true, kNearestFirst.size() + 1};
    return {!is_legal, is_far ? kNearestFirst.size() : idx};
  }
};

/// What takes blocks, or the split of which they are items.
bool is_of_blocks(const Node& node) {
  return as_block(node).has_value() ||
         std::any_of(node.users().begin(), node.users().end(), [&](const Node* user) {
           const auto block = user->is_call_of(op::kGetItem) ? as_block(*user) : std::nullopt;
           return block && block->source != &node && user->arguments()[0].node() == &node;
         });
}

/// Names the blocks: those of the cat that puts them together, or the one that is taken.
Judgement judge_blocks(const Way& way) {
  if (way.cat != nullptr) {
    const std::vector<Block> blocks = blocks_of_cat(*way.cat);
    if (!blocks.empty())
      return {.reason = Reason::kBlocks, .node = way.cat, .says = "takes " + to_text(blocks)};
  }
  Judgement judgement{.reason = Reason::kBlocks, .node = way.blocks};
  if (const auto block = as_block(*way.blocks)) judgement.says = "takes " + to_text(std::vector{*block});
  return judgement;
}

class Search {
 public:
  Search(Node& gather, const RowLocal& local, const OpaqueOps& opaque)
      : gather_(gather), local_(local), opaque_(opaque), dependence_(gather) {}

  /// Nearest ways first.
  Refusal run() {
    const auto& shape = type_of(gather_).shape;
    const DimPlace gathered(shape, as_collective(gather_).dim);
    std::deque<Way> open{{.node = &gather_, .gathered = gathered, .last = {shape, shape.size() - 1}}};
    std::set<Way::State> seen{open[0].state()};
    constexpr std::size_t kFarEnough = 500;  // ways; what is farther away is no longer about this gather
    while (!open.empty() && seen.size() < kFarEnough) {
      const Way way = open.front();
      open.pop_front();
      for (Node* const user : way.node->users()) {
        if (const auto product = as_product(*user)) {
          note(judge(way, *product));
        } else if (const auto scattered = products_scattered_by(*user); !scattered.empty()) {
          for (const Product& one : scattered) note(judge_taken(way, one));
        } else if (user->is_call_of(op::kBmm)) {
          note(judge_batch(way, *user));
        } else if (user->kind() == NodeKind::kCall) {
          Way next = beyond(way, *user);
          if (seen.insert(next.state()).second) open.push_back(next);
        }
      }
    }
    return {best_.reason, best_.node, best_.says, best_.is_legal};
  }

 private:
  Way beyond(Way way, const Node& user) {
    const Node& from = *way.node;
    way.node = &user;
    if (user.is_call_of(op::kMax)) {
      if (way.maximum == nullptr) way.maximum = &user;
    } else if (user.is_call_of(op::kPermute) && !way.is_far) {
      permute(way, type_of(from).shape, user);
    } else if (is_view_op(user)) {
      if (!keeps_rows(user) && way.reshape == nullptr) way.reshape = &user;
    } else if (is_of_blocks(user) || (way.blocks != nullptr && user.is_call_of(op::kCat))) {
      if (way.blocks == nullptr || !as_block(*way.blocks)) way.blocks = &user;
      if (way.cat == nullptr && user.is_call_of(op::kCat)) way.cat = &user;
      way.are_blocks_of_rows = way.are_blocks_of_rows && last_size(from) == last_size(user);
      way.is_cut = true;
    } else if (is_multiple_here(from, user)) {
      if (way.factor == nullptr) way.factor = &user;
    } else if (is_cast_op(user) || user.is_call_of("aten.amax.default") || user.is_call_of(op::kGetItem)) {
      if (way.cast == nullptr) way.cast = &user;
      way.is_far = way.is_far || !has_shape_of(user, from);
    } else {
      if (way.between == nullptr) way.between = &user;
      way.is_far = way.is_far || !has_shape_of(user, from);
    }
    return way;
  }

  /// By numbers that do not come of the gather.
  bool is_multiple_here(const Node& from, const Node& user) {
    const std::vector<Node*> inputs = user.inputs();
    return is_multiple(user, from) && std::all_of(inputs.begin(), inputs.end(), [&](const Node* input) {
             return input == &from || !dependence_.of(*input);
           });
  }

  /// Of a tensor, or of the first of several.
  static std::optional<std::int64_t> last_size(const Node& node) {
    const auto& tensors = node.type().tensors;
    if (tensors.empty() || !tensors[0] || tensors[0]->shape.empty()) return std::nullopt;
    return tensors[0]->shape.back();
  }

  static bool has_shape_of(const Node& a, const Node& b) {
    return a.type().tensor() != nullptr && b.type().tensor() != nullptr &&
           type_of(a).shape == type_of(b).shape;
  }

  static void permute(Way& way, const std::vector<std::int64_t>& shape, const Node& user) {
    std::vector<std::size_t> order;
    for (const Argument& dim : *user.arguments()[1].list()) {
      order.push_back(dim_from_front(*dim.integer(), shape.size()));
    }
    if (way.permute == nullptr) way.permute = &user;
    // Both, also where the first is cut.
    const bool is_gathered_whole = way.gathered.follow(shape, order);
    way.is_cut = !way.last.follow(shape, order) || !is_gathered_whole || way.is_cut;
  }

  static Judgement op_between(const Way& way) {
    return {.reason = Reason::kOpBetween, .node = way.op(), .is_far = way.is_far};
  }

  static Judgement judge_batch(const Way& way, const Node& product) {
    if (way.between == nullptr && !way.is_far) return {Reason::kBatchedProduct, &product};
    return op_between(way);
  }

  Judgement judge(const Way& way, const Product& product) {
    if (product.a != way.node) return judge_other_operand(way, product);
    if (way.maximum != nullptr) return {Reason::kScaleOfWhole, way.maximum};
    if (way.is_far) return op_between(way);
    const std::int64_t columns = type_of(*product.a).shape.back();
    if (way.permute != nullptr && !way.is_cut && way.last.is_in_rows(columns) &&
        way.gathered.is_in_columns(columns)) {
      return {Reason::kTransposedOperand, way.permute};
    }
    if (way.between != nullptr) return op_between(way);
    Judgement others = judge_others(product);
    if (others.reason != Reason::kNoProduct && !others.is_legal) return others;
    if (way.blocks != nullptr) {
      Judgement blocks = judge_blocks(way);
      // Rows that are left out, or repeated, are those of the product too.
      blocks.is_legal =
          way.are_blocks_of_rows && way.cast == nullptr && way.permute == nullptr && way.reshape == nullptr;
      return blocks;
    }
    // A view that keeps the gathered dim among the rows could be taken of the shard instead.
    const bool has_views = way.permute != nullptr || way.reshape != nullptr;
    const bool has_rows =
        !way.is_cut && way.gathered.has_parts_in_rows(columns, as_collective(gather_).world);
    const bool is_legal = way.cast == nullptr && (!has_views || has_rows);
    if (way.factor != nullptr && way.cast == nullptr) return {Reason::kOpBetween, way.factor, is_legal};
    if (way.permute != nullptr) return {Reason::kOpBetween, way.permute, is_legal};
    if (way.reshape != nullptr) return {Reason::kReshape, way.reshape, is_legal};
    if (others.is_legal) return others;
    if (!local_.is_view(*way.node)) return op_between(way);
    return {Reason::kUnsupportedType, product.node};
  }

  /// Of a product that a scatter's fused op computes: it is in no other one.
  Judgement judge_taken(const Way& way, const Product& product) {
    if (product.a != way.node && product.b != way.node) return {};
    Judgement judgement = judge(way, product);
    if (judgement.is_legal || judgement.reason == Reason::kUnsupportedType)
      judgement = {Reason::kProductTaken, product.node};
    return judgement;
  }

  /// What is in the way of a product whose left operand is gathered; kNoProduct if nothing is.
  Judgement judge_others(const Product& product) {
    const OpaqueOps::Values values = values_of(product, gather_);
    if (opaque_.between(gather_, *product.node, values))
      return {Reason::kOpaqueBetween, opaque_.first_after(gather_, values)};
    for (const Node* const other : product.other_operands()) {
      if (!dependence_.of(*other)) continue;
      const Node& maker = maker_of(*other);
      return {Reason::kDependentOperand, &maker == &gather_ ? product.node : &maker};
    }
    const Node* const scale = product.a_scale;
    if (scale != nullptr && dependence_.of(*scale) && !local_.contains(*scale))
      return {Reason::kScaleOfWhole, taker_of_whole(*scale)};
    if (product.has_factors) return {Reason::kFactors, product.node, true};
    return {};
  }

  Judgement judge_other_operand(const Way& way, const Product& product) const {
    const bool is_right = product.b == way.node;
    if (!is_right && product.bias != way.node && product.addend != way.node) return {};
    if (way.is_far) return op_between(way);
    if (way.maximum != nullptr) return {};
    return {is_right ? Reason::kRightOperand : Reason::kBiasOperand, product.node};
  }

  static const Node& maker_of(const Node& node) {
    const Node* maker = &node;
    while (is_view_op(*maker) || maker->is_call_of(op::kPermute)) maker = maker->arguments()[0].node();
    return *maker;
  }

  /// The first op above a scale that takes what is gathered not row by row.
  const Node* taker_of_whole(const Node& scale) {
    const Node* taker = &scale;
    for (const Node* above = taker; above != nullptr;) {
      taker = above;
      above = nullptr;
      for (const Node* const input : taker->inputs()) {
        if (dependence_.of(*input) && !local_.contains(*input)) above = input;
      }
    }
    return taker;
  }

  void note(Judgement judgement) {
    if (judgement.distance() < best_.distance()) best_ = std::move(judgement);
  }

  const Node& gather_;
  const RowLocal& local_;
  const OpaqueOps& opaque_;
  Dependence dependence_;
  Judgement best_;
};

}  // namespace

Refusal why_not_gather(Node& gather, const RowLocal& local, const OpaqueOps& opaque) {
  return Search(gather, local, opaque).run();
}

}  // namespace tandem::graph
