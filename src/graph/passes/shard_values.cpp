#include "graph/passes/shard_values.hpp"

#include <algorithm>
#include <unordered_set>
#include <vector>

#include "base/try.hpp"
#include "graph/passes/edits.hpp"

namespace tandem::graph {

Result<Node*> ShardValues::of(Node& node) {
  std::vector<Node*> open{&node};
  std::vector<Node*> needed;
  std::unordered_set<const Node*> seen{&node};
  while (!open.empty()) {
    Node* const one = open.back();
    open.pop_back();
    if (known(*one) != nullptr) continue;
    needed.push_back(one);
    for (Node* const input : one->inputs()) {
      if (local_.contains(*input) && seen.insert(input).second) open.push_back(input);
    }
  }
  std::sort(needed.begin(), needed.end(),
            [](const Node* a, const Node* b) { return Graph::is_before(*a, *b); });
  for (Node* const one : needed) TANDEM_TRY(make(*one));
  return known(node);
}

Node* ShardValues::known(const Node& node) const {
  if (local_.is_view(node)) return collective_.input;
  const auto found = made_.find(&node);
  return found == made_.end() ? nullptr : found->second;
}

Result<void> ShardValues::make(Node& node) {
  Argument::List arguments = node.arguments();
  for (Argument& argument : arguments) {
    Node* const input = argument.node();
    if (input != nullptr && local_.contains(*input)) argument.value = known(*input);
  }
  if (is_view_op(node)) {
    made_[&node] = arguments[0].node();  // rows keep their order
    return {};
  }
  if (arguments.size() > 1 && arguments[1].list() != nullptr) {
    arguments[1] = {list_of({-1})};  // a row's maximum: the last dim, however many there are before it
  }
  // As wide as the shard, or a column.
  const std::vector<std::int64_t>& shard = type_of(*collective_.input).shape;
  const bool is_wide = type_of(node).shape.back() == type_of(*local_.nodes()[0]).shape.back();
  TensorType type = contiguous_type(is_wide ? shard : with_last(shard, 1), type_of(node).dtype);
  TANDEM_ASSIGN(made_[&node],
                graph_.insert_before(&node, {.kind = NodeKind::kCall,
                                             .name = graph_.free_name(node.name() + "_shard"),
                                             .target = node.target(),
                                             .arguments = std::move(arguments),
                                             .named_arguments = node.named_arguments(),
                                             .type = {NodeType::Kind::kTensor, {std::move(type)}}}));
  return {};
}

}  // namespace tandem::graph
