#include "graph/ir/shape_rules.hpp"

#include <algorithm>

#include "base/format.hpp"
#include "base/try.hpp"
#include "graph/ir/limits.hpp"
#include "graph/ir/shape_call.hpp"

namespace tandem::graph {
namespace {

Result<void> same_dtype(const Call& call) {
  if (call.node.type().tensor()->dtype == call.input(0).dtype) return {};
  return failf(ErrorCode::kInvalidArgument, "makes {}, need {}", call.node.type().tensor()->dtype,
               call.input(0).dtype);
}

Result<void> same_shape(const Call& call) {
  return need(call, call.input(0).shape);
}

Result<void> same_numel(const Call& call) {
  TANDEM_TRY(same_dtype(call));
  const TensorType& made = *call.node.type().tensor();
  if (made.numel() == call.input(0).numel()) return {};
  return failf(ErrorCode::kInvalidArgument, "makes {} of {}", listed(made.shape),
               listed(call.input(0).shape));
}

Result<void> same_type(const Call& call) {
  TANDEM_TRY(same_shape(call));
  return same_dtype(call);
}

/// Of a collective, whose last argument is its group. Other groups than the graph's may have more ranks.
Result<void> check_world(const Call& call, std::int64_t size) {
  const auto* const group = std::get_if<std::string>(&call.node.arguments().back().value);
  const bool is_of_graph = group != nullptr && *group == call.group;
  const int most = is_of_graph ? call.world_size : kMaxWorldSize;
  if (size >= 1 && size <= most) return {};
  return failf(ErrorCode::kInvalidArgument, "is of {} ranks, need 1 to {}{}", size, most,
               is_of_graph ? ", the graph's" : "");
}

Result<void> gather(const Call& call, std::int64_t dim, std::int64_t size) {
  TANDEM_TRY(check_world(call, size));
  TANDEM_TRY(same_dtype(call));
  const Shape& shard = call.input(0).shape;
  TANDEM_ASSIGN(const std::size_t along, dim_of(dim, shard.size()));
  TANDEM_ASSIGN(const Shape whole, gathered(call, shard, along, size));
  return need(call, whole);
}

Result<void> scatter(const Call& call, std::int64_t dim, std::int64_t size) {
  TANDEM_TRY(check_world(call, size));
  TANDEM_TRY(same_dtype(call));
  const Shape& whole = call.input(0).shape;
  TANDEM_ASSIGN(const std::size_t along, dim_of(dim, whole.size()));
  return need(call, scattered(whole, along, size));
}

Result<void> functional_all_gather(const Call& call) {
  return gather(call, 0, call.integer(1));
}

Result<void> scatter_evenly(const Call& call, std::int64_t world) {
  const Shape& whole = call.input(0).shape;
  if (world > 0 && !whole.empty() && whole[0] % world != 0)
    return failf(ErrorCode::kInvalidArgument, "scatters dim 0 of {} over {} ranks", listed(whole), world);
  return scatter(call, 0, world);
}

Result<void> functional_reduce_scatter(const Call& call) {
  return scatter_evenly(call, call.integer(2));
}

Result<void> low_contention_all_gather(const Call& call) {
  return gather(call, 0, call.world_size);
}

Result<void> low_contention_reduce_scatter(const Call& call) {
  return scatter_evenly(call, call.world_size);
}

Result<void> all_gather(const Call& call) {
  return gather(call, call.integer(1), call.integer(2));
}

Result<void> reduce_scatter(const Call& call) {
  return scatter(call, call.integer(2), call.integer(3));
}

Result<void> split(const Call& call) {
  const Shape& whole = call.input(0).shape;
  TANDEM_ASSIGN(const std::size_t dim, dim_of(call.integer(2), whole.size()));
  if (!call.node.arguments()[1].integer()) return {};
  const std::int64_t piece = call.integer(1);
  if (piece < 1) return failf(ErrorCode::kInvalidArgument, "splits into pieces of {}", piece);
  const auto& made = call.node.type();
  const auto count = static_cast<std::size_t>(whole[dim] == 0 ? 1 : (whole[dim] - 1) / piece + 1);
  if (made.kind != NodeType::Kind::kList || made.tensors.size() != count) {
    return failf(ErrorCode::kInvalidArgument, "makes {} tensors, need {}", made.tensors.size(), count);
  }
  for (std::size_t i = 0; i < count; ++i) {
    Shape shape = whole;
    shape[dim] = std::min(piece, whole[dim] - static_cast<std::int64_t>(i) * piece);
    const bool is_right =
        made.tensors[i] && made.tensors[i]->shape == shape && made.tensors[i]->dtype == call.input(0).dtype;
    if (is_right) continue;
    return failf(ErrorCode::kInvalidArgument, "piece {} is {}, need {}{}", i,
                 made.tensors[i] ? made.tensors[i]->dtype + listed(made.tensors[i]->shape) : "null",
                 call.input(0).dtype, listed(shape));
  }
  return {};
}

/// An end of a slice: from the back where it is negative, and inside of the tensor.
std::int64_t clamped(std::int64_t at, std::int64_t size) {
  return std::clamp<std::int64_t>(at < 0 ? at + size : at, 0, size);
}

Result<void> slice(const Call& call) {
  TANDEM_TRY(same_dtype(call));
  Shape shape = call.input(0).shape;
  TANDEM_ASSIGN(const std::size_t dim, dim_of(call.integer(1), shape.size()));
  for (const Argument& one : call.node.arguments()) {
    if (one.is_symbolic()) return {};
  }
  const std::int64_t step = call.integer(4, 1);
  if (step < 1) return failf(ErrorCode::kInvalidArgument, "takes each {}th element", step);
  const std::int64_t size = shape[dim];
  const std::int64_t begin = clamped(call.integer(2), size);
  const std::int64_t length = std::max<std::int64_t>(clamped(call.integer(3, size), size) - begin, 0);
  shape[dim] = length / step + (length % step != 0 ? 1 : 0);
  return need(call, shape);
}

Result<void> getitem(const Call& call) {
  const NodeType& from = call.node.arguments()[0].node()->type();
  const std::int64_t idx = call.integer(1);
  if (idx < 0 || static_cast<std::size_t>(idx) >= from.tensors.size()) {
    return failf(ErrorCode::kInvalidArgument, "takes item {} of {}", idx, from.tensors.size());
  }
  const auto& item = from.tensors[static_cast<std::size_t>(idx)];
  const TensorType* const made = call.node.type().tensor();
  if (!item && made == nullptr) return {};
  if (item && made != nullptr && *item == *made) return {};
  return failf(ErrorCode::kInvalidArgument, "makes another type than item {} has", idx);
}

Result<void> cat(const Call& call) {
  const Argument::List& parts = *call.node.arguments()[0].list();
  Shape shape = parts[0].node()->type().tensor()->shape;
  TANDEM_ASSIGN(const std::size_t dim, dim_of(call.integer(1), shape.size()));
  for (std::size_t i = 1; i < parts.size(); ++i) {
    const Shape& part = parts[i].node()->type().tensor()->shape;
    if (part.size() != shape.size()) {
      return failf(ErrorCode::kInvalidArgument, "part {} has {} dims, need {}", i, part.size(), shape.size());
    }
    if (shape[dim] > kMaxNumel - part[dim]) {
      return failf(ErrorCode::kInvalidArgument, "joins more than 2^62 along dim {}", dim);
    }
    shape[dim] += part[dim];
  }
  return need(call, shape);
}

/// Whether a size of a reshape is one that the program does not know.
bool is_unknown_size(const Call& call, std::size_t idx) {
  return (*call.node.arguments()[1].list())[idx].is_symbolic();
}

Result<void> reshape(const Call& call) {
  const Shape& from = call.input(0).shape;
  Shape to = call.integers(1);
  const auto unknown = std::find(to.begin(), to.end(), -1);
  const TensorType* const made = call.node.type().tensor();
  if (unknown != to.end() && made != nullptr && made->shape.size() == to.size()) {
    *unknown = made->shape[static_cast<std::size_t>(unknown - to.begin())];
  }
  for (std::size_t i = 0; made != nullptr && made->shape.size() == to.size() && i < to.size(); ++i) {
    if (to[i] == Call::kUnknown && is_unknown_size(call, i)) to[i] = made->shape[i];
  }
  TANDEM_TRY(need(call, to));
  TANDEM_TRY(same_dtype(call));
  if (made->numel() == call.input(0).numel()) return {};
  return failf(ErrorCode::kInvalidArgument, "makes {} of {}", listed(to), listed(from));
}

Result<void> permute(const Call& call) {
  const Shape& from = call.input(0).shape;
  const Shape order = call.integers(1);
  if (order.size() != from.size()) {
    return failf(ErrorCode::kInvalidArgument, "order {} for {} dims", listed(order), from.size());
  }
  Shape to;
  std::vector<bool> is_taken(from.size(), false);
  for (const std::int64_t one : order) {
    TANDEM_ASSIGN(const std::size_t dim, dim_of(one, from.size()));
    if (is_taken[dim])
      return failf(ErrorCode::kInvalidArgument, "order {} has dim {} twice", listed(order), dim);
    is_taken[dim] = true;
    to.push_back(from[dim]);
  }
  TANDEM_TRY(need(call, to));
  return same_dtype(call);
}

Result<void> product(const Call& call, std::size_t left, std::size_t right) {
  const Shape& a = call.input(left).shape;
  const Shape& b = call.input(right).shape;
  if (a.size() != 2 || b.size() != 2 || a[1] != b[0]) {
    return failf(ErrorCode::kInvalidArgument, "multiplies {} by {}", listed(a), listed(b));
  }
  return need(call, {a[0], b[1]});
}

Result<void> mm(const Call& call) {
  TANDEM_TRY(same_dtype(call));
  return product(call, 0, 1);
}

Result<void> bmm(const Call& call) {
  TANDEM_TRY(same_dtype(call));
  const Shape& a = call.input(0).shape;
  const Shape& b = call.input(1).shape;
  if (a.size() != 3 || b.size() != 3 || a[0] != b[0] || a[2] != b[1]) {
    return failf(ErrorCode::kInvalidArgument, "multiplies {} by {}, need [batch, m, k] and [batch, k, n]",
                 listed(a), listed(b));
  }
  return need(call, {a[0], a[1], b[2]});
}

Result<void> scaled_mm(const Call& call) {
  return product(call, 0, 1);
}

Result<void> addmm(const Call& call) {
  TANDEM_TRY(same_dtype(call));
  return product(call, 1, 2);
}

struct OpRule {
  std::string_view target;
  ShapeRule rule;
};

constexpr OpRule kRules[] = {
    {"<built-in function getitem>", getitem},
    {"_c10d_functional.all_gather_into_tensor.default", functional_all_gather},
    {"_c10d_functional.all_reduce.default", same_type},
    {"_c10d_functional.reduce_scatter_tensor.default", functional_reduce_scatter},
    {"_c10d_functional.wait_tensor.default", same_type},
    {"aten._scaled_mm.default", scaled_mm},
    {"aten._unsafe_view.default", reshape},
    {"aten.addmm.default", addmm},
    {"aten.bmm.default", bmm},
    {"aten.cat.default", cat},
    {"aten.clone.default", same_type},
    {"aten.mm.default", mm},
    {"aten.permute.default", permute},
    {"aten.relu.default", same_type},
    {"aten.reshape.default", reshape},
    {"aten.slice.Tensor", slice},
    {"aten.split.Tensor", split},
    {"aten.squeeze.dim", same_numel},
    {"aten.unsqueeze.default", same_numel},
    {"aten.view.default", reshape},
    {"prims.convert_element_type.default", same_shape},
    {"symm_mem._low_contention_all_gather.default", low_contention_all_gather},
    {"symm_mem._low_contention_reduce_scatter.default", low_contention_reduce_scatter},
    {"symm_mem.fused_all_gather_matmul.default", check_fused_all_gather},
    {"symm_mem.fused_all_gather_scaled_matmul.default", check_fused_all_gather_scaled},
    {"symm_mem.fused_matmul_reduce_scatter.default", check_fused_reduce_scatter},
    {"symm_mem.fused_scaled_matmul_reduce_scatter.default", check_fused_reduce_scatter_scaled},
    {"tandem.all_gather.default", all_gather},
    {"tandem.fused_matmul_all_reduce.default", check_fused_all_reduce},
    {"tandem.fused_scaled_matmul_all_reduce.default", check_fused_all_reduce},
    {"tandem.reduce_scatter.default", reduce_scatter},
};

}  // namespace

Result<void> check_shapes(const Node& node, const GraphHeader& header) {
  const auto* const found = std::find_if(std::begin(kRules), std::end(kRules),
                                         [&](const OpRule& one) { return one.target == node.target(); });
  if (found == std::end(kRules)) return {};
  return found->rule({node, header.world_size, header.group});
}

}  // namespace tandem::graph
