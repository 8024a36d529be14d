#include "graph/passes/replicated.hpp"

#include <algorithm>
#include <unordered_set>
#include <vector>

#include "graph/ir/ops.hpp"
#include "graph/ir/signatures.hpp"
#include "graph/passes/products.hpp"

namespace tandem::graph {
namespace {

bool is_collected(const Node& node, const GraphHeader& header) {
  if (node.is_call_of(op::kAllGather)) return is_of_all(as_collective(node), header);
  if (!node.is_call_of(op::kFunctionalAllReduce)) return false;
  const auto* const group = std::get_if<std::string>(&node.arguments()[2].value);
  return group != nullptr && *group == header.group;
}

bool is_gathered(const Node& node) {
  return std::any_of(node.users().begin(), node.users().end(),
                     [](const Node* user) { return user->is_call_of(op::kAllGather); });
}

}  // namespace

bool is_replicated(const Node& node, const GraphHeader& header) {
  std::vector<const Node*> open{&node};
  std::unordered_set<const Node*> seen{&node};
  while (!open.empty()) {
    const Node* const one = open.back();
    open.pop_back();
    if (is_collected(*one, header)) continue;
    const TensorType* const type = one->type().tensor();
    if (one->is_given()) {
      if (type == nullptr || type->numel() != 1 || is_gathered(*one)) return false;
      continue;
    }
    const bool is_scattered =
        one->is_call_of(op::kReduceScatter) || one->is_call_of(op::kFunctionalReduceScatter);
    if (is_scattered || !is_known_op(*one) || one->is_call_of(op::kWithRngState)) return false;
    for (const Node* const input : one->inputs()) {
      if (seen.insert(input).second) open.push_back(input);
    }
  }
  return true;
}

}  // namespace tandem::graph
