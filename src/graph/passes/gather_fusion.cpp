#include "graph/passes/gather_fusion.hpp"

#include <algorithm>
#include <set>
#include <unordered_set>

#include "graph/ir/ops.hpp"
#include "graph/passes/row_local.hpp"
#include "graph/report/cost.hpp"

namespace tandem::graph {
namespace {

bool is_same_scale(const GatherUse& a, const GatherUse& b) {
  return a.product.a_scale == b.product.a_scale && a.mode == b.mode;
}

bool shares_collective(const Node& a, const Node& b) {
  return std::any_of(a.collectives().begin(), a.collectives().end(),
                     [&](const std::string& name) { return b.collectives().contains(name); });
}

class Planner {
 public:
  Planner(Graph& graph, Node& gather, const Gathers& gathers, const OpaqueOps& opaque)
      : graph_(graph), gathers_(gathers), opaque_(opaque), collective_(as_collective(gather)) {
    fusion_.gather = &gather;
  }

  GatherPlan run(const FuseOptions& options, Explains explains) {
    GatherMatch match = match_gather(*fusion_.gather, graph_.header, opaque_, explains);
    if (match.uses.empty()) return {std::nullopt, match.why_not};
    // One op takes one scale. Other products then read what it has gathered.
    for (GatherUse& use : match.uses) {
      if (!use.needs_narrowing() && is_same_scale(use, match.uses[0])) fusion_.uses.push_back(std::move(use));
    }
    if (fusion_.uses.empty()) return {std::nullopt, {Reason::kOpBetween, match.uses[0].product.a}};
    find_beside();
    place();
    if (fusion_.uses.empty()) return {std::nullopt, {Reason::kOpaqueBetween, in_the_way_}};
    if (options.cost && saved_us(work_of(fusion_, graph_.header.world_size), graph_.header.world_size) <= 0) {
      return {std::nullopt, {Reason::kNotProfitable, nullptr}};
    }
    return {std::move(fusion_), {}};
  }

 private:
  /// Gathers that do work of the same captured collective, or bring the scale and are needed elsewhere too.
  void find_beside() {
    const Node& gather = *fusion_.gather;
    if (!fusion_.is_scaled()) return;
    for (const std::string& name : gathers_.related_to(gather, fusion_.scale_gather())) {
      if (fusion_.also_gather.size() == op::kMaxAlsoGathered) return;
      Node* const found = graph_.find(name);
      if (found == nullptr || found == &gather) continue;
      Node& other = *found;
      const bool brings_scale = &other == fusion_.scale_gather();
      if (!(brings_scale ? !fusion_.other_readers(other).empty() : shares_collective(gather, other)))
        continue;
      // One that has products of its own hides behind those.
      if (run_together(gather, other) && match_gather(other, graph_.header, opaque_).uses.empty())
        fusion_.also_gather.push_back(&other);
    }
  }

  template <class Nodes>
  void consider(const Nodes& readers) {
    for (Node* const reader : readers) {
      if (fusion_.place == nullptr || Graph::is_before(*reader, *fusion_.place)) fusion_.place = reader;
    }
  }

  /// All that the op reads, and what it gathers.
  [[nodiscard]] OpaqueOps::Values values() const {
    OpaqueOps::Values found;
    for (const Node* const beside : fusion_.also_gather) {
      found.push_back(beside);
      found.push_back(as_collective(*beside).input);
    }
    for (const GatherUse& use : fusion_.uses) {
      const OpaqueOps::Values of_product = values_of(use.product, *fusion_.gather);
      found.insert(found.end(), of_product.begin(), of_product.end());
      if (use.scale_gather != nullptr) found.push_back(as_collective(*use.scale_gather).input);
    }
    return found;
  }

  /// Before the first use of anything it makes, but not beyond an op that may change what it reads.
  void place() {
    consider(fusion_.other_readers(*fusion_.gather));
    for (Node* const beside : fusion_.also_gather) consider(fusion_.other_readers(*beside));
    for (const GatherUse& use : fusion_.uses) {
      consider(use.product.node->users());
    }
    if (Node* const opaque = opaque_.first_after(*fusion_.gather, values()); opaque != nullptr)
      consider(std::vector{opaque});
    std::vector<GatherUse> kept;
    std::vector<Node*> shards{collective_.input};
    for (Node* const beside : fusion_.also_gather) shards.push_back(as_collective(*beside).input);
    if (!std::all_of(shards.begin(), shards.end(), [&](Node* shard) { return raise(*shard); })) {
      return fusion_.uses.clear();
    }
    for (GatherUse& use : fusion_.uses) {
      const std::size_t before = fusion_.raised.size();
      const std::vector<Node*> operands = operands_of(use);
      if (std::all_of(operands.begin(), operands.end(),
                      [&](Node* operand) { return !depends_on_beside(*operand) && raise(*operand); })) {
        kept.push_back(std::move(use));
        continue;
      }
      for (; fusion_.raised.size() > before; fusion_.raised.pop_back())
        is_raised_.erase(fusion_.raised.back());
    }
    fusion_.uses = std::move(kept);
    std::sort(fusion_.raised.begin(), fusion_.raised.end(),
              [](const Node* a, const Node* b) { return Graph::is_before(*a, *b); });
  }

  static std::vector<Node*> operands_of(const GatherUse& use) {
    std::vector<Node*> operands = use.product.other_operands();
    if (use.scale_gather != nullptr) {
      operands.push_back(as_collective(*use.scale_gather).input);
    } else if (use.product.a_scale != nullptr) {
      operands.push_back(use.product.a_scale);
    }
    return operands;
  }

  [[nodiscard]] bool depends_on_beside(const Node& operand) const {
    return std::any_of(fusion_.also_gather.begin(), fusion_.also_gather.end(),
                       [&](const Node* beside) { return Dependence(*beside).of(operand); });
  }

  /// Adds what of `node` and above it does not come before the place, if all of it can be moved there.
  bool raise(Node& node) {
    std::vector<Node*> open{&node};
    while (!open.empty()) {
      Node* const one = open.back();
      open.pop_back();
      if (Graph::is_before(*one, *fusion_.place) || is_raised_.contains(one)) continue;
      const std::vector<Node*> inputs = one->inputs();
      OpaqueOps::Values values(inputs.begin(), inputs.end());
      values.push_back(one);
      const bool can_move = one->is_given() || OpaqueOps::can_move(*one);
      const bool is_behind = opaque_.may_change(*fusion_.place, values);
      if (!can_move || is_behind || opaque_.between(*fusion_.place, *one, values)) {
        in_the_way_ = !can_move   ? one
                      : is_behind ? fusion_.place
                                  : opaque_.first_after(*fusion_.place, values);
        return false;
      }
      is_raised_.insert(one);
      fusion_.raised.push_back(one);
      open.insert(open.end(), inputs.begin(), inputs.end());
    }
    return true;
  }

  Graph& graph_;
  const Gathers& gathers_;
  const OpaqueOps& opaque_;
  Collective collective_;
  GatherFusion fusion_;
  std::unordered_set<const Node*> is_raised_;  ///< what is in fusion_.raised
  const Node* in_the_way_ = nullptr;           ///< of an operand that comes too late
};

}  // namespace

std::vector<Node*> GatherFusion::other_readers(const Node& gather_or_view) const {
  std::vector<Node*> readers;
  std::unordered_set<const Node*> products;
  for (const GatherUse& use : uses) products.insert(use.product.node);
  std::vector<const Node*> open{&gather_or_view};
  while (!open.empty()) {
    const Node* const one = open.back();
    open.pop_back();
    for (Node* const user : one->users()) {
      if (products.contains(user)) continue;
      if (is_view_op(*user)) {
        open.push_back(user);
      } else {
        readers.push_back(user);
      }
    }
  }
  return readers;
}

GatherPlan plan_gather(Graph& graph, Node& gather, const Gathers& gathers, const OpaqueOps& opaque,
                       const FuseOptions& options, Explains explains) {
  return Planner(graph, gather, gathers, opaque).run(options, explains);
}

Gathers::Gathers(const Graph& graph) {
  for (const Node& node : graph.nodes()) {
    if (!node.is_call_of(op::kAllGather)) continue;
    for (const std::string& name : node.collectives()) by_collective_[name].push_back(names_.size());
    idx_of_.emplace(node.name(), names_.size());
    names_.push_back(node.name());
  }
}

std::vector<std::string> Gathers::related_to(const Node& gather, const Node* other) const {
  std::set<std::size_t> found;
  for (const std::string& name : gather.collectives()) {
    const auto sharing = by_collective_.find(name);
    if (sharing != by_collective_.end()) found.insert(sharing->second.begin(), sharing->second.end());
  }
  const auto idx = other == nullptr ? idx_of_.end() : idx_of_.find(other->name());
  if (idx != idx_of_.end()) found.insert(idx->second);
  std::vector<std::string> names;
  for (const std::size_t one : found) names.push_back(names_[one]);
  return names;
}

}  // namespace tandem::graph
