#include "graph/passes/opaque_ops.hpp"

#include <algorithm>
#include <array>
#include <iterator>
#include <string_view>
#include <unordered_set>
#include <vector>

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
  std::vector<Node*> found;
  for (Node& node : graph.nodes()) {
    if (contains(node)) found.push_back(&node);
  }
  if (found.empty()) return;
  memory_ = Memory(graph);
  for (Node* const node : found) by_memory_[memory_.of(*node)[0]].push_back(node);
}

bool OpaqueOps::contains(const Node& node) {
  return node.kind() == NodeKind::kCall && !is_known_op(node) && !is_functional(node) &&
         !std::binary_search(std::begin(kPureOps), std::end(kPureOps), node.target());
}

bool OpaqueOps::can_move(const Node& node) {
  if (is_known_op(node)) return true;
  constexpr std::array<std::string_view, 9> kDraws = {"rand",    "bernoulli",   "dropout",
                                                      "normal",  "multinomial", "uniform_",
                                                      "poisson", "exponential", "attention"};
  return node.kind() == NodeKind::kCall && is_functional(node) &&
         std::none_of(kDraws.begin(), kDraws.end(),
                      [&](std::string_view word) { return node.target().find(word) != std::string::npos; });
}

namespace {

bool is_before(const Node* a, const Node* b) {
  return Graph::is_before(*a, *b);
}

/// The first behind `node` that takes a newer value, or a view of it.
Node* first_user(const Node& value, const Node& node) {
  Node* first = nullptr;
  std::vector<const Node*> open{&value};
  std::unordered_set<const Node*> seen;
  while (!open.empty()) {
    const Node* const one = open.back();
    open.pop_back();
    for (Node* const user : one->users()) {
      if (OpaqueOps::contains(*user)) {
        if (is_before(&node, user) && (first == nullptr || is_before(user, first))) first = user;
      } else if (user->kind() == NodeKind::kCall && !makes_memory(*user) && seen.insert(user).second) {
        open.push_back(user);
      }
    }
  }
  return first;
}

}  // namespace

Node* OpaqueOps::first_after(const Node& node, const Values& values) const {
  Node* first = nullptr;
  const auto note = [&](Node* found) {
    if (found != nullptr && (first == nullptr || is_before(found, first))) first = found;
  };
  for (const Node* const value : values) {
    if (value == nullptr || by_memory_.empty()) continue;
    for (const std::size_t memory : memory_.of(*value)) {
      const auto ops = by_memory_.find(memory);
      if (ops == by_memory_.end()) continue;
      const auto found = std::upper_bound(ops->second.begin(), ops->second.end(), &node, is_before);
      note(found == ops->second.end() ? nullptr : *found);
    }
    if (memory_.is_new(*value)) note(first_user(*value, node));
  }
  return first;
}

bool OpaqueOps::may_change(const Node& node, const Values& values) const {
  if (!contains(node)) return false;
  const auto takes = [&](const Node* value) {
    if (value == nullptr) return false;
    const std::vector<std::size_t> memories = memory_.of(*value);
    if (std::find(memories.begin(), memories.end(), memory_.of(node)[0]) != memories.end()) return true;
    return value->users().contains(&node);
  };
  return std::any_of(values.begin(), values.end(), takes);
}

}  // namespace tandem::graph
