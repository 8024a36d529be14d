#include "graph/passes/coalesced.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <tandem/graph/passes.hpp>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/format.hpp"
#include "base/try.hpp"
#include "graph/ir/ops.hpp"
#include "graph/passes/edits.hpp"

namespace tandem::graph {
namespace {

using Names = std::pair<std::string_view, std::string_view>;
constexpr std::array<Names, 3> kSingles = {{
    {"_c10d_functional.all_gather_into_tensor_coalesced.default", op::kFunctionalAllGather},
    {"_c10d_functional.all_reduce_coalesced.default", op::kFunctionalAllReduce},
    {"_c10d_functional.reduce_scatter_tensor_coalesced.default", op::kFunctionalReduceScatter},
}};

NodeType type_of_item(const Node& node, std::size_t idx) {
  return {NodeType::Kind::kTensor, {node.type().tensors[idx]}};
}

/// One of the tensors: what goes in, and the nodes that come of it.
struct Item {
  Node* input = nullptr;
  Node* item = nullptr;    ///< getitem
  Node* result = nullptr;  ///< what is waited for
};

/// The nodes that take the items of a list, by their numbers; null where there is none, or more. Empty where
/// something else takes the list.
std::vector<Node*> items_taken_of(const Node& list, std::size_t num_items) {
  std::vector<Node*> items(num_items, nullptr);
  std::vector<bool> is_taken(num_items, false);
  for (Node* const user : list.users()) {
    if (!user->is_call_of(op::kGetItem)) return {};
    const auto idx = user->arguments()[1].integer();
    if (!idx || *idx < 0 || static_cast<std::size_t>(*idx) >= num_items) continue;
    const auto at = static_cast<std::size_t>(*idx);
    items[at] = is_taken[at] ? nullptr : user;
    is_taken[at] = true;
  }
  return items;
}

/// Finds what is waited for, by waits for one item each or by one for all.
class Waits {
 public:
  /// What is waited for by the one wait for an item, or null.
  Node* result_of(const Node& item) {
    Node* const wait = only_user(item);
    if (wait == nullptr || wait->is_call_of(op::kWait)) return wait;
    if (!wait->is_call_of(op::kWaits) || wait->arguments()[0].list() == nullptr) return nullptr;
    if (wait != of_all_) note(*wait);
    const auto found = results_.find(&item);
    return found == results_.end() ? nullptr : found->second;
  }

 private:
  void note(const Node& wait) {
    of_all_ = &wait;
    results_.clear();
    const Argument::List& waited = *wait.arguments()[0].list();
    const std::vector<Node*> items = items_taken_of(wait, waited.size());
    for (std::size_t i = 0; i < items.size(); ++i) results_.emplace(waited[i].node(), items[i]);
  }

  const Node* of_all_ = nullptr;
  std::unordered_map<const Node*, Node*> results_;  ///< of what it waits for
};

/// Empty where values of it go elsewhere before they are waited for.
std::vector<Item> items_of(const Node& node) {
  std::vector<Item> items;
  if (node.arguments().empty() || node.arguments()[0].list() == nullptr) return {};
  const Argument::List& inputs = *node.arguments()[0].list();
  if (node.type().kind != NodeType::Kind::kList || node.type().tensors.size() != inputs.size()) return {};
  const std::vector<Node*> taken = items_taken_of(node, inputs.size());
  Waits waits;
  for (std::size_t i = 0; i < taken.size(); ++i) {
    Item one{.input = inputs[i].node(), .item = taken[i]};
    if (one.item != nullptr) one.result = waits.result_of(*one.item);
    const bool is_tensor = one.input != nullptr && one.input->type().tensor() != nullptr;
    if (one.result == nullptr || !is_tensor || !node.type().tensors[i]) return {};
    items.push_back(one);
  }
  return node.users().size() == items.size() ? items : std::vector<Item>();
}

/// A collective of one tensor, and what is waited for, which has the name of the wait in its place.
Result<void> split_off(Graph& graph, Node& node, std::size_t idx, const Item& item) {
  Argument::List arguments{{item.input}};
  arguments.insert(arguments.end(), node.arguments().begin() + 1, node.arguments().end());
  const std::string_view target = *single_of(node);
  TANDEM_ASSIGN(Node* const started,
                graph.insert_before(&node, {.kind = NodeKind::kCall,
                                            .name = graph.free_name(short_name(target)),
                                            .target = std::string(target),
                                            .arguments = std::move(arguments),
                                            .named_arguments = node.named_arguments(),
                                            .type = type_of_item(node, idx),
                                            .collectives = {coalesced_name(node, idx)}}));
  TANDEM_ASSIGN(Node* const waited, graph.insert_before(&node, {.kind = NodeKind::kCall,
                                                                .name = graph.free_name("waited"),
                                                                .target = std::string(op::kWait),
                                                                .arguments = {{started}},
                                                                .named_arguments = {},
                                                                .type = type_of_item(node, idx)}));
  graph.replace_uses(*item.result, *waited);
  Node* const wait = item.result->arguments()[0].node();  // where all are waited for at once
  const std::string name = item.result->name();
  TANDEM_TRY(graph.erase(*item.result));
  if (wait == item.item) return graph.rename(*waited, name);
  return wait->users().empty() ? graph.erase(*wait) : Result<void>();
}

Result<void> split(Graph& graph, Node& node) {
  const std::vector<Item> items = items_of(node);
  for (std::size_t i = 0; i < items.size(); ++i) TANDEM_TRY(split_off(graph, node, i, items[i]));
  for (const Item& one : items) TANDEM_TRY(graph.erase(*one.item));
  return items.empty() ? Result<void>() : graph.erase(node);
}

/// Those of one node that nothing was fused with, in the order of its tensors.
using Started = std::map<std::string, Node*, std::less<>>;

/// Whether they can start where the last of them does: with the same arguments, each for one wait, and
/// nothing reads a result before.
bool can_join(const Started& started) {
  const Node& first = *started.begin()->second;
  const Node* last = &first;
  for (const auto& [name, one] : started) {
    if (Graph::is_before(*last, *one)) last = one;
  }
  return started.size() > 1 && std::all_of(started.begin(), started.end(), [&](const auto& entry) {
           const Node& one = *entry.second;
           const Node* const wait = only_user(one);
           const bool is_same = one.target() == first.target() &&
                                std::equal(one.arguments().begin() + 1, one.arguments().end(),
                                           first.arguments().begin() + 1, first.arguments().end());
           return is_same && wait != nullptr && wait->is_call_of(op::kWait) &&
                  std::all_of(wait->users().begin(), wait->users().end(),
                              [&](const Node* user) { return Graph::is_before(*last, *user); });
         });
}

Result<void> join(Graph& graph, const std::string& name, const Started& started) {
  if (!can_join(started)) return {};
  const Node& first = *started.begin()->second;
  Argument::List inputs;
  NodeType types{NodeType::Kind::kList, {}};
  Node* place = started.begin()->second;
  for (const auto& [each, one] : started) {
    inputs.push_back(one->arguments()[0]);
    types.tensors.push_back(*one->type().tensor());
    if (Graph::is_before(*place, *one)) place = one;
  }
  Argument::List arguments = first.arguments();
  arguments[0] = {std::move(inputs)};
  TANDEM_ASSIGN(Node* const node, graph.insert_before(place, {.kind = NodeKind::kCall,
                                                              .name = graph.free_name(name),
                                                              .target = std::string(*coalesced_of(first)),
                                                              .arguments = std::move(arguments),
                                                              .named_arguments = {},
                                                              .type = std::move(types)}));
  std::vector<Node*> items;
  for (std::size_t i = 0; i < started.size(); ++i) {
    TANDEM_ASSIGN(Node* const item, item_of(graph, *place, *node, static_cast<std::int64_t>(i)));
    items.push_back(item);
  }
  auto item = items.begin();
  for (const auto& [each, one] : started) {
    Node* const wait = only_user(*one);
    if (Graph::is_before(*wait, *place)) graph.move_before(*wait, *place);
    graph.replace_uses(*one, **item++);
  }
  for (const auto& [each, one] : started) TANDEM_TRY(graph.erase(*one));
  return {};
}

}  // namespace

std::optional<std::string_view> single_of(const Node& node) {
  for (const auto& [several, one] : kSingles) {
    if (node.is_call_of(several)) return one;
  }
  return std::nullopt;
}

std::optional<std::string_view> coalesced_of(const Node& node) {
  for (const auto& [several, one] : kSingles) {
    if (node.is_call_of(one)) return several;
  }
  return std::nullopt;
}

std::string coalesced_name(const Node& node, std::size_t idx) {
  return fmt::format("{}[{}]", node.name(), idx);
}

std::optional<std::string> name_of_coalesced(std::string_view name) {
  return name.ends_with(']') ? std::optional(std::string(name.substr(0, name.find('[')))) : std::nullopt;
}

Result<void> split_coalesced(Graph& graph) {
  std::vector<Node*> found;
  for (Node& node : graph.nodes()) {
    if (single_of(node)) found.push_back(&node);
  }
  for (Node* const node : found) TANDEM_TRY(split(graph, *node));
  return {};
}

Result<void> join_coalesced(Graph& graph) {
  std::map<std::string, Started, std::less<>> found;
  for (Node& node : graph.nodes()) {
    if (!coalesced_of(node) || node.collectives().size() != 1) continue;
    const std::string& name = *node.collectives().begin();
    if (const auto of = name_of_coalesced(name)) found[*of].emplace(name, &node);
  }
  for (const auto& [name, started] : found) TANDEM_TRY(join(graph, name, started));
  return {};
}

}  // namespace tandem::graph
