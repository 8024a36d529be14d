#include "graph/interpreter/fused_nodes.hpp"

#include <optional>
#include <tandem/graph/text.hpp>

#include "base/format.hpp"
#include "base/try.hpp"
#include "graph/interpreter/collectives.hpp"
#include "graph/ir/shards.hpp"

namespace tandem::graph::interpreter {
namespace {

/// One type a product; `otherwise` where there is none.
Result<std::vector<DType>> dtypes_at(const Call& call, std::size_t idx, std::size_t count, DType otherwise) {
  std::vector<DType> dtypes(count, otherwise);
  const auto* const argument = call.argument(idx);
  if (argument == nullptr) return dtypes;
  const auto given = argument->entries();
  if (given.size() != count) {
    return failf(ErrorCode::kInvalidArgument, "has {} types for {} products", given.size(), count);
  }
  for (std::size_t i = 0; i < count; ++i) {
    if (std::holds_alternative<std::monostate>(given[i].value)) continue;
    TANDEM_ASSIGN(dtypes[i], call.dtype_or(&given[i], otherwise));
  }
  return dtypes;
}

/// Whether every product allows sums that are less exact.
Result<bool> flags_at(const Call& call, std::size_t idx) {
  const auto* const argument = call.argument(idx);
  if (argument == nullptr) return false;
  for (const graph::Argument& entry : argument->entries()) {
    TANDEM_ASSIGN(const bool flag, call.flag_or(&entry, false));
    if (!flag) return false;
  }
  return true;
}

Result<ScaleMode> scale_mode_of(const Call& call) {
  const auto* const argument = call.named("scale_mode");
  const auto* const text = argument == nullptr ? nullptr : std::get_if<std::string>(&argument->value);
  for (const auto mode :
       {ScaleMode::kTensorwise, ScaleMode::kRowwiseSharded, ScaleMode::kRowwiseReplicated}) {
    if (text != nullptr && *text == to_string(mode)) return mode;
  }
  return failf(ErrorCode::kInvalidArgument,
               "scale_mode is {}, need tensorwise, rowwise_sharded or rowwise_replicated",
               argument == nullptr ? "missing" : graph::to_text(*argument));
}

}  // namespace

// (shard, [b...], dim, group, bias=[...]?, gather_size=rows?, return_A=flag)
Result<GatherNode> read_gather(const Call& call) {
  TANDEM_ASSIGN(HostTensor a, call.tensor(0));
  TANDEM_ASSIGN(auto b, call.tensors(1));
  TANDEM_ASSIGN(const int dim, call.dim(2, a));
  TANDEM_TRY(check_group(call, 3));
  TANDEM_ASSIGN(Values bias, call.optional_tensors_in(call.named("bias"), b.size()));
  TANDEM_ASSIGN(const bool returns_gathered, call.flag_or(call.named("return_A"), false));
  return GatherNode{std::move(a),    std::move(b),    dim, graph::gather_size_of(call.node()),
                    std::move(bias), returns_gathered};
}

// (shard, [b...], scale of a, [scale of b...], dim, group, [bias...], [result scale...], [type...],
// [fast...], also_gather=[shard...]?, gather_size=rows?, return_A=flag, scale_mode=text)
Result<ScaledGatherNode> read_scaled_gather(const Call& call) {
  TANDEM_ASSIGN(HostTensor a, call.tensor(0));
  TANDEM_ASSIGN(auto b, call.tensors(1));
  TANDEM_ASSIGN(HostTensor a_scale, call.tensor(2));
  TANDEM_ASSIGN(auto b_scale, call.tensors(3));
  TANDEM_ASSIGN(const int dim, call.dim(4, a));
  TANDEM_TRY(check_group(call, 5));
  TANDEM_ASSIGN(Values bias, call.optional_tensors(6, b.size()));
  TANDEM_ASSIGN(Values result_scale, call.optional_tensors(7, b.size()));
  TANDEM_ASSIGN(auto dtypes, dtypes_at(call, 8, b.size(), a.dtype()));
  TANDEM_ASSIGN(const bool allows_fast_sums, flags_at(call, 9));
  std::vector<HostTensor> also_gather;
  if (const auto* named = call.named("also_gather"); named != nullptr) {
    TANDEM_ASSIGN(also_gather, call.tensors_in(named));
  }
  TANDEM_ASSIGN(const bool returns_gathered, call.flag_or(call.named("return_A"), false));
  TANDEM_ASSIGN(const ScaleMode mode, scale_mode_of(call));
  if (b_scale.size() != b.size()) {
    return failf(ErrorCode::kInvalidArgument, "has {} scales for {} right operands", b_scale.size(),
                 b.size());
  }
  return ScaledGatherNode{{std::move(a), std::move(b), dim, graph::gather_size_of(call.node()),
                           std::move(bias), returns_gathered},
                          mode,
                          std::move(a_scale),
                          std::move(b_scale),
                          std::move(result_scale),
                          std::move(dtypes),
                          allows_fast_sums,
                          std::move(also_gather)};
}

namespace {

/// Where a node has what all sums over ranks have.
struct Places {
  std::size_t op;
  std::size_t group;
  std::optional<std::size_t> dim = {};
};

/// What is not of the single products.
Result<ScatterNode> read_sum(const Call& call, const Places& at) {
  TANDEM_ASSIGN(const auto a, call.tensors(0));
  TANDEM_ASSIGN(const auto name, call.text(at.op));
  TANDEM_ASSIGN(const auto op, reduce_op_of(name));
  ScatterNode node;
  node.op = op;
  node.dtype = a.front().dtype();
  if (at.dim) {
    TANDEM_ASSIGN(node.dim, call.dim(*at.dim, a.front()));
  }
  TANDEM_TRY(check_group(call, at.group));
  TANDEM_ASSIGN(node.returns_product, call.flag_or(call.named("return_product"), false));
  return node;
}

Result<void> check_pairs(const std::vector<HostTensor>& a, const std::vector<HostTensor>& b) {
  if (a.size() == b.size()) return {};
  return failf(ErrorCode::kInvalidArgument, "has {} left and {} right operands", a.size(), b.size());
}

Result<ScatterNode> read_plain_sum(const Call& call, const Places& at) {
  TANDEM_ASSIGN(ScatterNode node, read_sum(call, at));
  TANDEM_ASSIGN(const auto a, call.tensors(0));
  TANDEM_ASSIGN(const auto b, call.tensors(1));
  TANDEM_ASSIGN(const Values bias, call.optional_tensors_in(call.named("bias"), a.size()));
  TANDEM_TRY(check_pairs(a, b));
  for (std::size_t j = 0; j < a.size(); ++j) node.products.push_back({.a = a[j], .b = b[j], .bias = bias[j]});
  return node;
}

/// `first`: where the biases are. Scales of results, the type and the flags follow.
Result<ScatterNode> read_scaled_sum(const Call& call, const Places& at, std::size_t first) {
  TANDEM_ASSIGN(ScatterNode node, read_sum(call, at));
  TANDEM_ASSIGN(const auto a, call.tensors(0));
  TANDEM_ASSIGN(const auto b, call.tensors(1));
  TANDEM_ASSIGN(const Values a_scale, call.optional_tensors(2, a.size()));
  TANDEM_ASSIGN(const Values b_scale, call.optional_tensors(3, a.size()));
  TANDEM_ASSIGN(const Values bias, call.optional_tensors(first, a.size()));
  TANDEM_ASSIGN(const Values result_scale, call.optional_tensors(first + 1, a.size()));
  TANDEM_ASSIGN(node.dtype, call.dtype_or(call.argument(first + 2), a.front().dtype()));
  TANDEM_ASSIGN(node.allows_fast_sums, flags_at(call, first + 3));
  TANDEM_TRY(check_pairs(a, b));
  for (std::size_t j = 0; j < a.size(); ++j)
    node.products.push_back({a[j], b[j], a_scale[j], b_scale[j], bias[j], result_scale[j]});
  return node;
}

}  // namespace

// (a or [a...], b or [b...], op, dim, group, bias=as a?, return_product=flag?)
Result<ScatterNode> read_scatter(const Call& call) {
  return read_plain_sum(call, {.op = 2, .group = 4, .dim = 3});
}

// (a or [a...], b, scale of a, scale of b, op, dim, dim, group, [sizes], bias, result scale, type, fast,
// return_product=flag?), all but the type and what the collective takes lists as a is
Result<ScatterNode> read_scaled_scatter(const Call& call) {
  return read_scaled_sum(call, {.op = 4, .group = 7, .dim = 6}, 9);
}

// As these, without dims and sizes.

Result<ScatterNode> read_all_reduce(const Call& call) {
  return read_plain_sum(call, {.op = 2, .group = 3});
}

Result<ScatterNode> read_scaled_all_reduce(const Call& call) {
  return read_scaled_sum(call, {.op = 4, .group = 5}, 6);
}

}  // namespace tandem::graph::interpreter
