#include "base/try.hpp"
#include "graph/ir/ops.hpp"
#include "program/collectives.hpp"
#include "program/fused_nodes.hpp"

namespace tandem::program {
namespace {

/// The slice of `x` along `dim` that came from `rank`.
HostTensor slice_of(const HostTensor& x, int dim, int rank, int world) {
  const std::int64_t size = x.sizes()[dim] / world;
  return HostTensor::copy_of(x.view().narrow(dim, rank * size, size), x.dtype());
}

Result<HostTensor> gathered_product(const GatherNode& node, const HostTensor& whole, std::size_t i,
                                    const Ranks& ranks) {
  std::vector<Product> products;
  if (node.dim < whole.sizes().size() - 1) {
    products.push_back({.a = whole, .b = node.b[i], .bias = node.bias[i]});
  } else {
    // Ranks hold slices of k, whose products add up in rank order.
    const int world = ranks.group.size();
    for (int rank = 0; rank < world; ++rank) {
      products.push_back(
          {.a = slice_of(whole, node.dim, rank, world), .b = slice_of(node.b[i], 0, rank, world)});
    }
    products.back().bias = node.bias[i];
  }
  return sum_of_products(products, node.a.dtype(), ranks.stream);
}

Result<Values> define_gather(const Call& call) {
  TANDEM_ASSIGN(const GatherNode node, read_gather(call));
  TANDEM_ASSIGN(const HostTensor whole, gather(node.a, node.dim, call.ranks()));
  Values values{node.returns_gathered ? std::optional(whole) : std::nullopt};
  for (std::size_t i = 0; i < node.b.size(); ++i) {
    TANDEM_ASSIGN(HostTensor out, gathered_product(node, whole, i, call.ranks()));
    values.emplace_back(std::move(out));
  }
  return values;
}

Result<Values> define_scatter(const Call& call) {
  TANDEM_ASSIGN(const ScatterNode node, read_scatter(call));
  TANDEM_ASSIGN(HostTensor product, sum_of_products(node.products, node.dtype, call.ranks().stream));
  TANDEM_ASSIGN(HostTensor part, reduce_scatter(product, node.dim, node.op, call.ranks()));
  Values values = one(std::move(part));
  if (node.returns_product) values.emplace_back(std::move(product));
  return values;
}

}  // namespace

Result<Values> define_fused(const Call& call) {
  return call.node().target() == graph::op::kFusedAllGatherMatmul ? define_gather(call)
                                                                  : define_scatter(call);
}

}  // namespace tandem::program
