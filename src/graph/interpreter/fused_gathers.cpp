#include <algorithm>
#include <tandem/base/shard.hpp>
#include <tandem/fused/all_gather_matmul.hpp>
#include <tandem/fused/all_gather_scaled_matmul.hpp>

#include "base/try.hpp"
#include "graph/interpreter/fused_call.hpp"
#include "graph/interpreter/fused_nodes.hpp"
#include "graph/interpreter/ops.hpp"
#include "graph/ir/ops.hpp"

namespace tandem::graph::interpreter {
namespace {

static_assert(graph::op::kMaxAlsoGathered == kMaxAlsoGathered,
              "passes put beside a gather what its op takes");

/// The size of the gathered dim over all ranks.
std::int64_t size_of(const GatherNode& node, const Group& group) {
  return node.size.value_or(node.a.sizes()[node.dim] * group.size());
}

/// What of `shard` is this rank's and no padding.
HostTensor without_padding(const HostTensor& shard, const GatherNode& node, const Group& group) {
  const std::int64_t rows = shard_of(size_of(node, group), group.size(), group.rank()).size;
  if (rows == shard.sizes()[node.dim]) return shard;
  return HostTensor::copy_of(shard.view().narrow(node.dim, 0, rows), shard.dtype());
}

/// Memory for all that a gather makes, in the order of the node's results.
struct GatherOutputs {
  std::optional<Output> gathered;
  std::vector<Output> products;
  std::vector<Output> also_gather;
  std::vector<TensorView> product_views = {};
  std::vector<TensorView> also_views = {};

  [[nodiscard]] Values take() const {
    Values values{gathered ? std::optional(gathered->take()) : std::nullopt};
    for (const auto* outputs : {&products, &also_gather}) {
      for (const Output& output : *outputs) values.emplace_back(output.take());
    }
    return values;
  }
};

/// Makes the memory that `args` need, and puts it there. `dtypes`: of the products.
template <class Args>
Result<void> allocate(const GatherNode& node, const std::vector<DType>& dtypes, Args& args,
                      GatherOutputs& outputs) {
  for (std::size_t i = 0; i < node.b.size(); ++i) {
    TANDEM_ASSIGN(const Layout layout, output_layout(args, static_cast<int>(i)));
    outputs.product_views.push_back(outputs.products.emplace_back(layout, dtypes[i]).view());
  }
  args.out = outputs.product_views;
  if (node.returns_gathered) {
    TANDEM_ASSIGN(const Layout layout, gathered_layout(args));
    args.gathered = outputs.gathered.emplace(layout, node.a.dtype()).view();
  }
  return {};
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
  const HostTensor a = without_padding(node.a, node, group);
  const std::vector<TensorView> b = views_of(node.b);
  const std::vector<HostTensor> biases = all_biases(node);
  const std::vector<TensorView> bias = views_of(biases);
  trace::EnqueueTrace trace;
  AllGatherMatmulArgs args{.a = a.view(),
                           .b = b,
                           .gather_dim = node.dim,
                           .gather_size = size_of(node, group),
                           .bias = bias,
                           .algorithm = Algorithm::kPipelined,
                           .trace = &trace};
  GatherOutputs outputs;
  TANDEM_TRY(allocate(node, std::vector(b.size(), node.a.dtype()), args, outputs));
  TANDEM_ASSIGN(const OpReport report, fused_all_gather_matmul(args, group, call.ranks().stream));
  return finish(call, report, trace, [&] { return outputs.take(); });
}

Result<Values> all_gather_scaled_matmul(const Call& call) {
  TANDEM_ASSIGN(const ScaledGatherNode node, read_scaled_gather(call));
  const GatherNode& plain = node.plain;
  Group& group = call.ranks().group;
  const HostTensor a = without_padding(plain.a, plain, group);
  const bool is_sharded = node.mode == ScaleMode::kRowwiseSharded;
  const HostTensor a_scale = is_sharded ? without_padding(node.a_scale, plain, group) : node.a_scale;
  std::vector<HostTensor> beside;
  for (const HostTensor& shard : node.also_gather) beside.push_back(without_padding(shard, plain, group));
  const std::vector<TensorView> b = views_of(plain.b);
  const std::vector<TensorView> b_scale = views_of(node.b_scale);
  const std::vector<TensorView> also_gather = views_of(beside);
  const auto bias = views_of(plain.bias);
  const auto result_scale = views_of(node.result_scale);
  trace::EnqueueTrace trace;
  AllGatherScaledMatmulArgs args{.a = a.view(),
                                 .b = b,
                                 .a_scale = a_scale.view(),
                                 .scale_mode = node.mode,
                                 .b_scale = b_scale,
                                 .gather_dim = plain.dim,
                                 .gather_size = size_of(plain, group),
                                 .bias = bias,
                                 .result_scale = result_scale,
                                 .fast_accum = node.allows_fast_sums,
                                 .also_gather = also_gather,
                                 .algorithm = Algorithm::kPipelined,
                                 .trace = &trace};
  GatherOutputs outputs;
  TANDEM_TRY(allocate(plain, node.dtypes, args, outputs));
  for (std::size_t i = 0; i < also_gather.size(); ++i) {
    TANDEM_ASSIGN(const Layout layout, also_gathered_layout(args, static_cast<int>(i)));
    outputs.also_views.push_back(outputs.also_gather.emplace_back(layout, also_gather[i].dtype).view());
  }
  args.also_gathered = outputs.also_views;
  TANDEM_ASSIGN(const OpReport report, fused_all_gather_scaled_matmul(args, group, call.ranks().stream));
  return finish(call, report, trace, [&] { return outputs.take(); });
}

constexpr Op kOps[] = {
    {graph::op::kFusedAllGatherMatmul, all_gather_matmul},
    {graph::op::kFusedAllGatherScaledMatmul, all_gather_scaled_matmul},
};

}  // namespace

std::span<const Op> fused_gather_ops() {
  return kOps;
}

}  // namespace tandem::graph::interpreter
