#include <algorithm>
#include <tandem/fused/matmul_all_reduce.hpp>
#include <tandem/fused/matmul_reduce_scatter.hpp>
#include <tandem/fused/scaled_matmul_all_reduce.hpp>
#include <tandem/fused/scaled_matmul_reduce_scatter.hpp>

#include "base/try.hpp"
#include "base/with_last.hpp"
#include "graph/interpreter/collectives.hpp"
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

Result<Layout> layout_of(const MatmulReduceScatterArgs& args, const Group& group) {
  return output_layout(args, group.size(), group.rank());
}
Result<Layout> layout_of(const ScaledMatmulReduceScatterArgs& args, const Group& group) {
  return output_layout(args, group.size(), group.rank());
}
Result<Layout> layout_of(const MatmulAllReduceArgs& args, const Group&) {
  return output_layout(args);
}
Result<Layout> layout_of(const ScaledMatmulAllReduceArgs& args, const Group&) {
  return output_layout(args);
}

Dims product_sizes(const ScatterNode& node) {
  const Product& product = node.products.front();
  return with_last(product.a.sizes(), product.b.sizes().back());
}

/// Makes the memory for the results of `args`, and puts it there.
template <class Args>
Result<Values> allocate(const ScatterNode& node, const Group& group, Args& args) {
  TANDEM_ASSIGN(const Layout layout, layout_of(args, group));
  Values values = one(HostTensor(layout.sizes, node.dtype));
  args.out = values[0]->view();
  if (node.returns_product) {
    args.product = values.emplace_back(HostTensor(product_sizes(node), node.dtype))->view();
  }
  return values;
}

/// `fused` takes such args, which have what only they have.
template <class Args, class Fused>
Result<Values> run_plain(const Call& call, const ScatterNode& node, Args args, Fused fused) {
  Group& group = call.ranks().group;
  const Operands operands(node.products);
  trace::EnqueueTrace trace;
  args.a = operands.a;
  args.b = operands.b;
  args.reduce_op = node.op;
  args.algorithm = Algorithm::kPipelined;
  args.trace = &trace;
  TANDEM_ASSIGN(Values values, allocate(node, group, args));
  TANDEM_ASSIGN(const OpReport report, fused(args, group, call.ranks().stream));
  return finish(call, report, trace, [&]() -> Result<Values> {
    if constexpr (requires { args.scatter_dim; }) {
      TANDEM_ASSIGN(values[0],
                    padded(*values[0], node.dim, product_sizes(node)[node.dim], Team(call.ranks())));
    }
    return values;
  });
}

/// As run_plain().
template <class Args, class Fused>
Result<Values> run_scaled(const Call& call, const ScatterNode& node, Args args, Fused fused) {
  const Operands operands(node.products);
  const auto a_scale = views_of(operands.a_scale);
  const auto b_scale = views_of(operands.b_scale);
  const auto bias = views_of(operands.bias);
  const auto result_scale = views_of(operands.result_scale);
  args.a_scale = a_scale;
  args.b_scale = b_scale;
  args.bias = bias;
  args.result_scale = result_scale;
  args.fast_accum = node.allows_fast_sums;
  return run_plain(call, node, args, fused);
}

Result<Values> run_scaled_scatter(const Call& call, const ScatterNode& node) {
  return run_scaled(call, node, ScaledMatmulReduceScatterArgs{.scatter_dim = node.dim},
                    fused_scaled_matmul_reduce_scatter);
}
Result<Values> run_scaled_all_reduce(const Call& call, const ScatterNode& node) {
  return run_scaled(call, node, ScaledMatmulAllReduceArgs{}, fused_scaled_matmul_all_reduce);
}

/// The plain ops add a bias once, after the sum over the ranks; a node's is each rank's own.
bool has_bias(const ScatterNode& node) {
  return std::any_of(node.products.begin(), node.products.end(),
                     [](const Product& product) { return product.bias.has_value(); });
}

Result<Values> matmul_reduce_scatter(const Call& call) {
  TANDEM_ASSIGN(const ScatterNode node, read_scatter(call));
  if (has_bias(node)) return run_scaled_scatter(call, node);
  return run_plain(call, node, MatmulReduceScatterArgs{.scatter_dim = node.dim}, fused_matmul_reduce_scatter);
}

Result<Values> scaled_matmul_reduce_scatter(const Call& call) {
  TANDEM_ASSIGN(const ScatterNode node, read_scaled_scatter(call));
  return run_scaled_scatter(call, node);
}

Result<Values> matmul_all_reduce(const Call& call) {
  TANDEM_ASSIGN(const ScatterNode node, read_all_reduce(call));
  if (has_bias(node)) return run_scaled_all_reduce(call, node);
  return run_plain(call, node, MatmulAllReduceArgs{}, fused_matmul_all_reduce);
}

Result<Values> scaled_matmul_all_reduce(const Call& call) {
  TANDEM_ASSIGN(const ScatterNode node, read_scaled_all_reduce(call));
  return run_scaled_all_reduce(call, node);
}

constexpr Op kOps[] = {
    {graph::op::kFusedMatmulReduceScatter, matmul_reduce_scatter},
    {graph::op::kFusedScaledMatmulReduceScatter, scaled_matmul_reduce_scatter},
    {graph::op::kFusedMatmulAllReduce, matmul_all_reduce},
    {graph::op::kFusedScaledMatmulAllReduce, scaled_matmul_all_reduce},
};

}  // namespace

std::span<const Op> fused_scatter_ops() {
  return kOps;
}

}  // namespace tandem::graph::interpreter
