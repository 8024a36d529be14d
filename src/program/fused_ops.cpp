#include <algorithm>
#include <tandem/fused/all_gather_matmul.hpp>
#include <tandem/fused/matmul_reduce_scatter.hpp>

#include "base/try.hpp"
#include "graph/ir/ops.hpp"
#include "program/fused_nodes.hpp"
#include "program/ops.hpp"

namespace tandem::program {
namespace {

/// Memory for a result in the library's layout, which has no holes.
class Output {
 public:
  Output(const Layout& layout, DType dtype) : memory_(layout.sizes, dtype), view_(memory_.view()) {
    view_.strides = layout.strides;
  }
  [[nodiscard]] const TensorView& view() const { return view_; }
  [[nodiscard]] HostTensor take() const { return HostTensor::copy_of(view_, view_.dtype); }

 private:
  HostTensor memory_;
  TensorView view_;
};

std::vector<TensorView> views_of(const std::vector<HostTensor>& tensors) {
  std::vector<TensorView> views;
  for (const HostTensor& tensor : tensors) views.push_back(tensor.view());
  return views;
}

/// Waits for the op, and tells who watches.
Result<Values> finish(const Call& call, const OpReport& report, const trace::EnqueueTrace& trace,
                      const std::function<Values()>& take) {
  TANDEM_TRY(call.ranks().stream.synchronize());
  Values values = take();
  if (call.ranks().watch) TANDEM_TRY(call.ranks().watch(call, {values, report, trace}));
  return values;
}

/// One bias a product, zeros where a product has none; empty if none has.
std::vector<HostTensor> all_biases(const GatherNode& node) {
  if (std::none_of(node.bias.begin(), node.bias.end(), [](const auto& bias) { return bias.has_value(); })) {
    return {};
  }
  std::vector<HostTensor> biases;
  for (std::size_t i = 0; i < node.b.size(); ++i) {
    biases.push_back(node.bias[i].value_or(HostTensor({node.b[i].sizes().back()}, node.a.dtype())));
  }
  return biases;
}

Result<Values> all_gather_matmul(const Call& call) {
  TANDEM_ASSIGN(const GatherNode node, read_gather(call));
  Group& group = call.ranks().group;
  const std::vector<TensorView> b = views_of(node.b);
  const std::vector<HostTensor> biases = all_biases(node);
  const std::vector<TensorView> bias = views_of(biases);
  trace::EnqueueTrace trace;
  AllGatherMatmulArgs args{.a = node.a.view(),
                           .b = b,
                           .gather_dim = node.dim,
                           .gather_size = node.a.sizes()[node.dim] * group.size(),
                           .bias = bias,
                           .algorithm = Algorithm::kPipelined,
                           .trace = &trace};
  std::vector<Output> outputs;
  std::vector<TensorView> out;
  for (std::size_t i = 0; i < b.size(); ++i) {
    TANDEM_ASSIGN(const Layout layout, output_layout(args, static_cast<int>(i)));
    out.push_back(outputs.emplace_back(layout, node.a.dtype()).view());
  }
  args.out = out;
  std::optional<Output> gathered;
  if (node.returns_gathered) {
    TANDEM_ASSIGN(const Layout layout, gathered_layout(args));
    args.gathered = gathered.emplace(layout, node.a.dtype()).view();
  }
  TANDEM_ASSIGN(const OpReport report, fused_all_gather_matmul(args, group, call.ranks().stream));
  return finish(call, report, trace, [&] {
    Values values{gathered ? std::optional(gathered->take()) : std::nullopt};
    for (const Output& output : outputs) values.emplace_back(output.take());
    return values;
  });
}

Result<Values> matmul_reduce_scatter(const Call& call) {
  TANDEM_ASSIGN(const ScatterNode node, read_scatter(call));
  Group& group = call.ranks().group;
  std::vector<TensorView> a;
  std::vector<TensorView> b;
  for (const Product& product : node.products) {
    a.push_back(product.a.view());
    b.push_back(product.b.view());
  }
  trace::EnqueueTrace trace;
  MatmulReduceScatterArgs args{.a = a,
                               .b = b,
                               .scatter_dim = node.dim,
                               .reduce_op = node.op,
                               .algorithm = Algorithm::kPipelined,
                               .trace = &trace};
  TANDEM_ASSIGN(const Layout layout, output_layout(args, group.size(), group.rank()));
  const HostTensor out(layout.sizes, node.dtype);
  args.out = out.view();
  std::optional<HostTensor> product;
  if (node.returns_product) {
    Dims sizes = node.products.front().a.sizes();
    sizes[sizes.size() - 1] = layout.sizes.back() * (node.dim == sizes.size() - 1 ? group.size() : 1);
    args.product = product.emplace(sizes, node.dtype).view();
  }
  TANDEM_ASSIGN(const OpReport report, fused_matmul_reduce_scatter(args, group, call.ranks().stream));
  return finish(call, report, trace, [&] {
    Values values = one(out);
    if (product) values.push_back(product);
    return values;
  });
}

constexpr Op kOps[] = {
    {graph::op::kFusedAllGatherMatmul, all_gather_matmul},
    {graph::op::kFusedMatmulReduceScatter, matmul_reduce_scatter},
};

}  // namespace

bool is_fused(const graph::Node& node) {
  return std::any_of(std::begin(kOps), std::end(kOps),
                     [&](const Op& op) { return node.is_call_of(op.target); });
}

std::span<const Op> fused_ops() {
  return kOps;
}

}  // namespace tandem::program
