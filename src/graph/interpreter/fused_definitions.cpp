#include <algorithm>
#include <array>
#include <tandem/base/shard.hpp>

#include "base/try.hpp"
#include "base/with_last.hpp"
#include "graph/interpreter/collectives.hpp"
#include "graph/interpreter/fused_nodes.hpp"
#include "graph/ir/ops.hpp"

namespace tandem::graph::interpreter {
namespace {

/// The slice of `x` along `dim` that came from `rank`; all of it where ranks share one element.
HostTensor slice_of(const HostTensor& x, int dim, int rank, int world) {
  if (x.sizes().empty() || x.sizes()[dim] < world) return x;
  const Shard part = shard_of(x.sizes()[dim], world, rank);
  return HostTensor::copy_of(x.view().narrow(dim, part.offset, part.size), x.dtype());
}

/// A product of what was gathered along `dim`. Where that is the last dim, ranks hold slices of k, each with
/// its own scale, whose products add up in rank order; the bias comes with the last.
Result<HostTensor> multiply_gathered(const Product& whole, int dim, DType dtype, const Ranks& ranks) {
  if (dim < whole.a.sizes().size() - 1) return sum_of_products({&whole, 1}, dtype, ranks.stream);
  std::vector<Product> slices;
  const int world = ranks.group.size();
  for (int rank = 0; rank < world; ++rank) {
    Product& slice = slices.emplace_back(whole);
    slice.a = slice_of(whole.a, dim, rank, world);
    slice.b = slice_of(whole.b, 0, rank, world);
    if (whole.a_scale) slice.a_scale = slice_of(*whole.a_scale, dim, rank, world);
    if (rank + 1 < world) slice.bias.reset();
  }
  return sum_of_products(slices, dtype, ranks.stream);
}

Result<Values> define_gather(const Call& call) {
  TANDEM_ASSIGN(const GatherNode node, read_gather(call));
  TANDEM_ASSIGN(const HostTensor whole, gather(node.a, node.dim, Team(call.ranks()), node.size));
  Values values{node.returns_gathered ? std::optional(whole) : std::nullopt};
  for (std::size_t i = 0; i < node.b.size(); ++i) {
    const Product product{.a = whole, .b = node.b[i], .bias = node.bias[i]};
    TANDEM_ASSIGN(HostTensor out, multiply_gathered(product, node.dim, node.a.dtype(), call.ranks()));
    values.emplace_back(std::move(out));
  }
  return values;
}

Result<Values> define_scaled_gather(const Call& call) {
  TANDEM_ASSIGN(const ScaledGatherNode node, read_scaled_gather(call));
  const GatherNode& plain = node.plain;
  TANDEM_ASSIGN(const HostTensor whole, gather(plain.a, plain.dim, Team(call.ranks()), plain.size));
  HostTensor a_scale = node.a_scale;
  if (node.mode == ScaleMode::kRowwiseSharded) {
    TANDEM_ASSIGN(a_scale, gather(node.a_scale, plain.dim, Team(call.ranks()), plain.size));
  }
  const Dims rows = with_last(whole.sizes(), 1);
  if (a_scale.numel() == numel(rows)) a_scale = a_scale.with_sizes(rows);  // [rows, 1] is allowed too
  Values values{plain.returns_gathered ? std::optional(whole) : std::nullopt};
  for (std::size_t i = 0; i < plain.b.size(); ++i) {
    const Product product{whole, plain.b[i], a_scale, node.b_scale[i], plain.bias[i], node.result_scale[i]};
    TANDEM_ASSIGN(HostTensor out, multiply_gathered(product, plain.dim, node.dtypes[i], call.ranks()));
    values.emplace_back(std::move(out));
  }
  for (const HostTensor& shard : node.also_gather) {
    TANDEM_ASSIGN(HostTensor all, gather(shard, plain.dim, Team(call.ranks()), plain.size));
    values.emplace_back(std::move(all));
  }
  return values;
}

Result<Values> scatter(const ScatterNode& node, const Ranks& ranks) {
  TANDEM_ASSIGN(HostTensor product, sum_of_products(node.products, node.dtype, ranks.stream));
  TANDEM_ASSIGN(HostTensor part, reduce_scatter(product, node.dim, node.op, Team(ranks)));
  Values values = one(std::move(part));
  if (node.returns_product) values.emplace_back(std::move(product));
  return values;
}

Result<Values> define_scatter(const Call& call) {
  TANDEM_ASSIGN(const ScatterNode node, read_scatter(call));
  return scatter(node, call.ranks());
}

Result<Values> define_scaled_scatter(const Call& call) {
  TANDEM_ASSIGN(const ScatterNode node, read_scaled_scatter(call));
  return scatter(node, call.ranks());
}

Result<Values> reduce(const ScatterNode& node, const Ranks& ranks) {
  TANDEM_ASSIGN(HostTensor product, sum_of_products(node.products, node.dtype, ranks.stream));
  TANDEM_ASSIGN(HostTensor sum, all_reduce(product, node.op, Team(ranks)));
  Values values = one(std::move(sum));
  if (node.returns_product) values.emplace_back(std::move(product));
  return values;
}

Result<Values> define_all_reduce(const Call& call) {
  TANDEM_ASSIGN(const ScatterNode node, read_all_reduce(call));
  return reduce(node, call.ranks());
}

Result<Values> define_scaled_all_reduce(const Call& call) {
  TANDEM_ASSIGN(const ScatterNode node, read_scaled_all_reduce(call));
  return reduce(node, call.ranks());
}

constexpr std::array<std::pair<std::string_view, Result<Values> (*)(const Call&)>, 6> kDefinitions = {{
    {graph::op::kFusedAllGatherMatmul, define_gather},
    {graph::op::kFusedAllGatherScaledMatmul, define_scaled_gather},
    {graph::op::kFusedMatmulReduceScatter, define_scatter},
    {graph::op::kFusedScaledMatmulReduceScatter, define_scaled_scatter},
    {graph::op::kFusedMatmulAllReduce, define_all_reduce},
    {graph::op::kFusedScaledMatmulAllReduce, define_scaled_all_reduce},
}};

}  // namespace

Result<Values> define_fused(const Call& call) {
  const auto* const found =
      std::find_if(kDefinitions.begin(), kDefinitions.end(),
                   [&](const auto& definition) { return call.node().is_call_of(definition.first); });
  return found->second(call);
}

}  // namespace tandem::graph::interpreter
