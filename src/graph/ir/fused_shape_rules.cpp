#include <algorithm>
#include <tandem/base/shard.hpp>
#include <tandem/graph/text.hpp>

#include "base/try.hpp"
#include "graph/ir/limits.hpp"
#include "graph/ir/shape_call.hpp"
#include "graph/ir/shards.hpp"

namespace tandem::graph {
namespace {

/// Of an argument that is one or a list of them.
std::vector<const TensorType*> tensors_at(const Call& call, std::size_t idx) {
  std::vector<const TensorType*> found;
  for (const Argument& one : call.node.arguments()[idx].entries()) {
    found.push_back(one.node()->type().tensor());
  }
  return found;
}

Result<void> need_item(const Call& call, std::size_t idx, const Shape& shape) {
  const auto& item = call.node.type().tensors[idx];
  if (item && item->shape == shape) return {};
  return failf(ErrorCode::kInvalidArgument, "item {} is {}, need {}", idx,
               item ? listed(item->shape) : "null", listed(shape));
}

Result<void> need_items(const Call& call, std::size_t count) {
  const NodeType& made = call.node.type();
  if (made.kind == NodeType::Kind::kList && made.tensors.size() == count) return {};
  return failf(ErrorCode::kInvalidArgument, "makes {} tensors, need {}", made.tensors.size(), count);
}

Result<void> need_product(const Shape& a, std::int64_t k, const Shape& b) {
  if (a.size() >= 2 && b.size() == 2 && k == b[0]) return {};
  return failf(ErrorCode::kInvalidArgument, "multiplies {} by {}", listed(a), listed(b));
}

/// [gathered a or null, products..., gathered shards beside...]
Result<void> check_gather(const Call& call, std::int64_t gather_dim) {
  const Shape& a = call.input(0).shape;
  TANDEM_ASSIGN(const std::size_t dim, dim_of(gather_dim, a.size()));
  TANDEM_ASSIGN(const Shape whole, gathered(call, a, dim, call.world_size));
  const auto b = tensors_at(call, 1);
  const auto found = call.node.named_arguments().find("also_gather");
  const Argument::List none;
  const Argument::List& also_gather =
      found != call.node.named_arguments().end() && found->second.list() != nullptr ? *found->second.list()
                                                                                    : none;
  TANDEM_TRY(need_items(call, 1 + b.size() + also_gather.size()));
  if (call.node.type().tensors[0]) TANDEM_TRY(need_item(call, 0, whole));
  for (std::size_t i = 0; i < b.size(); ++i) {
    TANDEM_TRY(need_product(whole, whole.back(), b[i]->shape));
    Shape product = whole;
    product.back() = b[i]->shape[1];
    TANDEM_TRY(need_item(call, 1 + i, product));
  }
  for (std::size_t i = 0; i < also_gather.size(); ++i) {
    const Node* const shard = also_gather[i].node();
    const TensorType* const type = shard == nullptr ? nullptr : shard->type().tensor();
    if (type == nullptr || type->shape.size() != a.size()) {
      return failf(ErrorCode::kInvalidArgument, "shard {} beside the first is no tensor of {} dims", i,
                   a.size());
    }
    TANDEM_ASSIGN(const Shape all, gathered(call, type->shape, dim, call.world_size));
    TANDEM_TRY(need_item(call, 1 + b.size() + i, all));
  }
  return {};
}

/// The shape of the sum of products.
Result<Shape> summed(const Call& call) {
  const auto a = tensors_at(call, 0);
  const auto b = tensors_at(call, 1);
  if (a.size() != b.size()) {
    return failf(ErrorCode::kInvalidArgument, "multiplies {} tensors by {}", a.size(), b.size());
  }
  if (a[0]->shape.empty() || b[0]->shape.size() != 2) {
    return failf(ErrorCode::kInvalidArgument, "multiplies {} by {}", listed(a[0]->shape),
                 listed(b[0]->shape));
  }
  Shape product = a[0]->shape;
  product.back() = b[0]->shape[1];
  for (std::size_t i = 0; i < a.size(); ++i) {
    TANDEM_TRY(need_product(a[i]->shape, a[i]->shape.empty() ? 0 : a[i]->shape.back(), b[i]->shape));
    Shape each = a[i]->shape;
    each.back() = b[i]->shape[1];
    if (each != product) {
      return failf(ErrorCode::kInvalidArgument, "product {} is {}, need {}", i, listed(each),
                   listed(product));
    }
  }
  return product;
}

/// What is left of the sum on a rank, or that and the product.
Result<void> need_part(const Call& call, const Shape& part, const Shape& product) {
  if (call.node.type().kind != NodeType::Kind::kList) return need(call, part);
  TANDEM_TRY(need_items(call, 2));
  TANDEM_TRY(need_item(call, 0, part));
  return need_item(call, 1, product);
}

/// scattered, or [scattered, product]
Result<void> check_scatter(const Call& call, std::int64_t scatter_dim) {
  TANDEM_ASSIGN(const Shape product, summed(call));
  TANDEM_ASSIGN(const std::size_t dim, dim_of(scatter_dim, product.size()));
  const auto padded = call.node.named_arguments().find(kPadded);
  const bool is_padded = padded != call.node.named_arguments().end() && padded->second == Argument{true};
  if (product[dim] % call.world_size != 0 && !is_padded) {
    return failf(ErrorCode::kInvalidArgument, "scatters dim {} of {} over {} ranks without padded=true", dim,
                 listed(product), call.world_size);
  }
  return need_part(call, scattered(product, dim, call.world_size), product);
}

}  // namespace

Result<Shape> gathered(const Call& call, Shape shard, std::size_t dim, std::int64_t world) {
  if (shard[dim] > kMaxNumel / world) {
    return failf(ErrorCode::kInvalidArgument, "gathers {} from {} ranks: more than 2^62", listed(shard),
                 world);
  }
  const std::int64_t all = shard[dim] * world;
  const auto found = call.node.named_arguments().find(kGatherSize);
  if (found == call.node.named_arguments().end()) {
    shard[dim] = all;
    return shard;
  }
  const std::int64_t size = found->second.integer().value_or(-1);
  if (size < 0 || size > all || shard_stride(size, static_cast<int>(world)) != shard[dim]) {
    return failf(ErrorCode::kInvalidArgument,
                 "gather_size is {}, but {} ranks with {} of dim {} each have between {} and {}",
                 to_text(found->second), world, shard[dim], dim, std::max<std::int64_t>(0, all - world + 1),
                 all);
  }
  shard[dim] = size;
  return shard;
}

Shape scattered(Shape whole, std::size_t dim, std::int64_t world) {
  whole[dim] = shard_stride(whole[dim], static_cast<int>(world));
  return whole;
}

Result<void> check_fused_all_gather(const Call& call) {
  return check_gather(call, call.integer(2));
}

Result<void> check_fused_all_gather_scaled(const Call& call) {
  return check_gather(call, call.integer(4));
}

Result<void> check_fused_reduce_scatter(const Call& call) {
  return check_scatter(call, call.integer(3));
}

Result<void> check_fused_reduce_scatter_scaled(const Call& call) {
  return check_scatter(call, call.integer(5));
}

Result<void> check_fused_all_reduce(const Call& call) {
  TANDEM_ASSIGN(const Shape product, summed(call));
  return need_part(call, product, product);
}

}  // namespace tandem::graph
