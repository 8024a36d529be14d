#include "graph/passes/opaque_ops.hpp"

#include <algorithm>
#include <iterator>
#include <string_view>

#include "graph/ir/signatures.hpp"

namespace tandem::graph {
namespace {

// Ops that tandem does not execute and that change nothing which a collective or a product reads, by op and
// overload. Those that write into what they take are not here.
constexpr std::string_view kPureOps[] = {
    // Python's own functions, as PyTorch prints them: they compute the whole numbers that sizes are.
    "<built-in function add>",
    "<built-in function and_>",
    "<built-in function eq>",
    "<built-in function floordiv>",
    "<built-in function ge>",
    "<built-in function gt>",
    "<built-in function le>",
    "<built-in function lt>",
    "<built-in function mod>",
    "<built-in function mul>",
    "<built-in function ne>",
    "<built-in function neg>",
    "<built-in function pow>",
    "<built-in function sub>",
    "<built-in function truediv>",
    // They send copies, and make new tensors of what comes.
    "_c10d_functional.all_gather_into_tensor_coalesced.default",
    "_c10d_functional.all_reduce_coalesced.default",
    "_c10d_functional.all_to_all_single.default",
    "_c10d_functional.broadcast.default",
    "_c10d_functional.reduce_scatter_tensor_coalesced.default",
    "_c10d_functional.wait_tensors.default",
    // They only compute; seeds are drawn from a generator that nothing else reads.
    "prims.broadcast_in_dim.default",
    "prims.device_put.default",
    "prims.fma.default",
    "prims.inductor_lookup_seed.default",
    "prims.inductor_randint.default",
    "prims.inductor_random.default",
    "prims.inductor_seed.default",
    "prims.inductor_seeds.default",
    "prims.iota.default",
};
static_assert(std::is_sorted(std::begin(kPureOps), std::end(kPureOps)));

/// Whether PyTorch's conventions say so: "aten.gelu.default" computes, "aten.gelu_.default" changes its
/// input, and "aten.gelu.out" what is given by name. Normalisations that keep statistics break the
/// convention.
bool is_functional(const Node& node) {
  const std::string_view target = node.target();
  if (!target.starts_with("aten.") || target.find("batch_norm") != std::string_view::npos ||
      target.find("with_noise") != std::string_view::npos) {
    return false;
  }
  const std::string_view name = target.substr(5, target.find('.', 5) - 5);
  const auto& named = node.named_arguments();
  return !name.ends_with('_') && !target.ends_with("out") &&
         std::none_of(named.begin(), named.end(),
                      [](const auto& one) { return one.second.node() != nullptr; });
}

}  // namespace

OpaqueOps::OpaqueOps(Graph& graph) {
  for (Node& node : graph.nodes()) {
    if (contains(node)) nodes_.push_back(&node);
  }
}

bool OpaqueOps::contains(const Node& node) {
  return node.kind() == NodeKind::kCall && !is_known_op(node) && !is_functional(node) &&
         !std::binary_search(std::begin(kPureOps), std::end(kPureOps), node.target());
}

Node* OpaqueOps::first_after(const Node& node) const {
  const auto found = std::upper_bound(nodes_.begin(), nodes_.end(), &node,
                                      [](const Node* a, const Node* b) { return Graph::is_before(*a, *b); });
  return found == nodes_.end() ? nullptr : *found;
}

bool OpaqueOps::between(const Node& first, const Node& second) const {
  const Node* const opaque = first_after(first);
  return opaque != nullptr && Graph::is_before(*opaque, second);
}

}  // namespace tandem::graph
