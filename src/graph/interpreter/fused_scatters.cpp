#include <algorithm>
#include <tandem/fused/matmul_reduce_scatter.hpp>
#include <tandem/fused/scaled_matmul_reduce_scatter.hpp>

#include "base/try.hpp"
#include "base/with_last.hpp"
#include "graph/interpreter/fused_call.hpp"
#include "graph/interpreter/fused_nodes.hpp"
#include "graph/interpreter/ops.hpp"
#include "graph/ir/ops.hpp"

namespace tandem::graph::interpreter {
namespace {

/// What the library takes of each product.
struct Operands {
  std::vector<TensorView> a;
  std::vector<TensorView> b;
  Values a_scale;
  Values b_scale;
  Values bias;
  Values result_scale;

  explicit Operands(const std::vector<Product>& products) {
    for (const Product& product : products) {
      a.push_back(product.a.view());
      b.push_back(product.b.view());
      a_scale.push_back(product.a_scale);
      b_scale.push_back(product.b_scale);
      bias.push_back(product.bias);
      result_scale.push_back(product.result_scale);
    }
  }
};

/// Makes the memory for the results of `args`, and puts it there.
template <class Args>
Result<Values> allocate(const ScatterNode& node, const Group& group, Args& args) {
  TANDEM_ASSIGN(const Layout layout, output_layout(args, group.size(), group.rank()));
  Values values = one(HostTensor(layout.sizes, node.dtype));
  args.out = values[0]->view();
  if (node.returns_product) {
    const Product& product = node.products.front();
    const Dims sizes = with_last(product.a.sizes(), product.b.sizes().back());
    args.product = values.emplace_back(HostTensor(sizes, node.dtype))->view();
  }
  return values;
}

Result<Values> run_plain(const Call& call, const ScatterNode& node) {
  Group& group = call.ranks().group;
  const Operands operands(node.products);
  trace::EnqueueTrace trace;
  MatmulReduceScatterArgs args{.a = operands.a,
                               .b = operands.b,
                               .scatter_dim = node.dim,
                               .reduce_op = node.op,
                               .algorithm = Algorithm::kPipelined,
                               .trace = &trace};
  TANDEM_ASSIGN(Values values, allocate(node, group, args));
  TANDEM_ASSIGN(const OpReport report, fused_matmul_reduce_scatter(args, group, call.ranks().stream));
  return finish(call, report, trace, [&] { return values; });
}

Result<Values> run_scaled(const Call& call, const ScatterNode& node) {
  Group& group = call.ranks().group;
  const Operands operands(node.products);
  const auto a_scale = views_of(operands.a_scale);
  const auto b_scale = views_of(operands.b_scale);
  const auto bias = views_of(operands.bias);
  const auto result_scale = views_of(operands.result_scale);
  trace::EnqueueTrace trace;
  ScaledMatmulReduceScatterArgs args{.a = operands.a,
                                     .b = operands.b,
                                     .a_scale = a_scale,
                                     .b_scale = b_scale,
                                     .bias = bias,
                                     .result_scale = result_scale,
                                     .scatter_dim = node.dim,
                                     .reduce_op = node.op,
                                     .fast_accum = node.allows_fast_sums,
                                     .algorithm = Algorithm::kPipelined,
                                     .trace = &trace};
  TANDEM_ASSIGN(Values values, allocate(node, group, args));
  TANDEM_ASSIGN(const OpReport report, fused_scaled_matmul_reduce_scatter(args, group, call.ranks().stream));
  return finish(call, report, trace, [&] { return values; });
}

Result<Values> matmul_reduce_scatter(const Call& call) {
  TANDEM_ASSIGN(const ScatterNode node, read_scatter(call));
  // The plain op adds a bias once, after the sum over the ranks; a node's is each rank's own.
  const bool has_bias = std::any_of(node.products.begin(), node.products.end(),
                                    [](const Product& product) { return product.bias.has_value(); });
  return has_bias ? run_scaled(call, node) : run_plain(call, node);
}

Result<Values> scaled_matmul_reduce_scatter(const Call& call) {
  TANDEM_ASSIGN(const ScatterNode node, read_scaled_scatter(call));
  return run_scaled(call, node);
}

constexpr Op kOps[] = {
    {graph::op::kFusedMatmulReduceScatter, matmul_reduce_scatter},
    {graph::op::kFusedScaledMatmulReduceScatter, scaled_matmul_reduce_scatter},
};

}  // namespace

std::span<const Op> fused_scatter_ops() {
  return kOps;
}

}  // namespace tandem::graph::interpreter
