#include "graph/passes/memory.hpp"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <string_view>

#include "graph/ir/ops.hpp"
#include "graph/passes/products.hpp"

namespace tandem::graph {
namespace {

// Ops whose results are new memory, always. Collectives are; the waits for them return what they take.
constexpr std::string_view kMakers[] = {
    "_c10d_functional.all_gather_into_tensor.default",
    "_c10d_functional.all_gather_into_tensor_coalesced.default",
    "_c10d_functional.all_reduce.default",
    "_c10d_functional.all_reduce_coalesced.default",
    "_c10d_functional.all_to_all_single.default",
    "_c10d_functional.reduce_scatter_tensor.default",
    "_c10d_functional.reduce_scatter_tensor_coalesced.default",
    "aten._scaled_mm.default",
    "aten._softmax.default",
    "aten._to_copy.default",
    "aten.abs.default",
    "aten.add.Scalar",
    "aten.add.Tensor",
    "aten.addmm.default",
    "aten.amax.default",
    "aten.bmm.default",
    "aten.cat.default",
    "aten.clamp_max.default",
    "aten.clamp_min.default",
    "aten.clone.default",
    "aten.constant_pad_nd.default",
    "aten.cos.default",
    "aten.div.Scalar",
    "aten.div.Tensor",
    "aten.embedding.default",
    "aten.eq.Scalar",
    "aten.erf.default",
    "aten.exp.default",
    "aten.exp2.default",
    "aten.floor.default",
    "aten.full.default",
    "aten.ge.Scalar",
    "aten.gelu.default",
    "aten.gt.Scalar",
    "aten.le.Scalar",
    "aten.log.default",
    "aten.log2.default",
    "aten.lt.Scalar",
    "aten.max.default",
    "aten.maximum.default",
    "aten.mean.dim",
    "aten.minimum.default",
    "aten.mm.default",
    "aten.mul.Scalar",
    "aten.mul.Tensor",
    "aten.ne.Scalar",
    "aten.neg.default",
    "aten.pow.Tensor_Scalar",
    "aten.reciprocal.default",
    "aten.relu.default",
    "aten.rsqrt.default",
    "aten.sigmoid.default",
    "aten.silu.default",
    "aten.sin.default",
    "aten.sqrt.default",
    "aten.sub.Tensor",
    "aten.sum.default",
    "aten.sum.dim_IntList",
    "aten.tanh.default",
    "aten.var_mean.correction",
    "aten.where.self",
    "prims.fma.default",
    "prims.inductor_random.default",
    "prims.inductor_seeds.default",
    "prims.iota.default",
    "tandem.all_gather.default",
    "tandem.reduce_scatter.default",
};
static_assert(std::is_sorted(std::begin(kMakers), std::end(kMakers)));

/// The root of a tree of ids, whose paths it shortens.
std::size_t root_of(std::vector<std::size_t>& above, std::size_t id) {
  while (above[id] != id) id = above[id] = above[above[id]];
  return id;
}

}  // namespace

bool makes_memory(const Node& node) {
  if (node.kind() != NodeKind::kCall) return node.is_given();
  if (node.is_call_of(op::kConvert)) {  // to its own type it may return what it takes
    const Node* const from = node.arguments()[0].node();
    return from != nullptr && from->type().tensor() != nullptr && node.type().tensor() != nullptr &&
           type_of(*from).dtype != type_of(node).dtype;
  }
  return op::is_fused(node.target()) ||
         std::binary_search(std::begin(kMakers), std::end(kMakers), node.target());
}

Memory::Memory(const Graph& graph) {
  std::size_t count = 0;
  for (const Node& node : graph.nodes()) count = std::max(count, node.id() + 1);
  roots_.resize(count);
  std::iota(roots_.begin(), roots_.end(), std::size_t{0});
  for (const Node& node : graph.nodes()) {
    if (node.kind() == NodeKind::kOutput || makes_memory(node)) continue;
    for (const Node* const input : node.inputs())
      roots_[root_of(roots_, input->id())] = root_of(roots_, node.id());
  }
  for (std::size_t id = 0; id < count; ++id) roots_[id] = root_of(roots_, id);
}

std::vector<std::size_t> Memory::of(const Node& node) const {
  if (!is_new(node)) return {roots_[node.id()]};
  std::vector<std::size_t> found;
  if (makes_memory(node)) return found;
  for (const Node* const input : node.inputs()) {
    const std::vector<std::size_t> above = of(*input);
    found.insert(found.end(), above.begin(), above.end());
  }
  return found;
}

}  // namespace tandem::graph
