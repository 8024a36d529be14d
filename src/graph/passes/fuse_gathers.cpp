#include <algorithm>
#include <tandem/graph/passes.hpp>

#include "base/try.hpp"
#include "graph/ir/ops.hpp"
#include "graph/ir/shards.hpp"
#include "graph/passes/edits.hpp"
#include "graph/passes/gather_fusion.hpp"
#include "graph/passes/row_local.hpp"

namespace tandem::graph {
namespace {

using Tensors = std::vector<std::optional<TensorType>>;

Argument::List arguments_of(const std::vector<GatherUse>& uses, Node* Product::*operand) {
  Argument::List list;
  for (const GatherUse& use : uses) {
    Node* const node = use.product.*operand;
    list.push_back(node == nullptr ? Argument{} : Argument{node});
  }
  return list;
}

/// Builds the fused op of a plan, and takes its parts out of the graph.
class Fusing {
 public:
  Fusing(Graph& graph, const GatherFusion& fusion)
      : graph_(graph),
        fusion_(fusion),
        collective_(as_collective(*fusion.gather)),
        whole_(type_of(*fusion.gather).shape),
        needs_whole_(!fusion.other_readers(*fusion.gather).empty()) {}

  Result<void> run() {
    for (Node* const node : fusion_.raised) graph_.move_before(*node, *fusion_.place);
    TANDEM_ASSIGN(Node* const fused, insert());
    std::int64_t item = 1;
    for (const GatherUse& use : fusion_.uses) TANDEM_TRY(take_product(*fused, item++, use));
    for (Node* const beside : fusion_.also_gather) TANDEM_TRY(take_gathered(*fused, item++, *beside));
    if (needs_whole_) TANDEM_TRY(take_gathered(*fused, 0, *fusion_.gather));
    return {};
  }

 private:
  Result<Node*> insert() {
    NodeSpec spec{.kind = NodeKind::kCall,
                  .name = graph_.free_name(fusion_.is_scaled() ? "fused_all_gather_scaled_matmul"
                                                               : "fused_all_gather_matmul"),
                  .target = std::string(fusion_.is_scaled() ? op::kFusedAllGatherScaledMatmul
                                                            : op::kFusedAllGatherMatmul),
                  .arguments = {},
                  .named_arguments = {},
                  .type = {NodeType::Kind::kList, {}},
                  .collectives = fusion_.gather->collectives()};
    spec.arguments = fusion_.is_scaled() ? scaled_arguments() : plain_arguments(spec);
    if (const auto size = gather_size_of(*fusion_.gather))
      spec.named_arguments[std::string(kGatherSize)] = {*size};
    spec.named_arguments["return_A"] = {needs_whole_};
    if (fusion_.is_scaled())
      spec.named_arguments["scale_mode"] = {std::string(to_string(fusion_.uses[0].mode))};
    const auto note_collectives = [&](const Node* gather) {
      if (gather != nullptr)
        spec.collectives.insert(gather->collectives().begin(), gather->collectives().end());
    };
    note_collectives(fusion_.scale_gather());
    spec.type.tensors = types();
    if (!fusion_.also_gather.empty()) {
      Argument::List shards;
      for (Node* const one : fusion_.also_gather) {
        shards.push_back({as_collective(*one).input});
        note_collectives(one);
      }
      spec.named_arguments["also_gather"] = {std::move(shards)};
    }
    return graph_.insert_before(fusion_.place, std::move(spec));
  }

  [[nodiscard]] Argument::List plain_arguments(NodeSpec& spec) const {
    Argument::List bias = arguments_of(fusion_.uses, &Product::bias);
    const bool has_bias =
        std::any_of(bias.begin(), bias.end(), [](const Argument& one) { return one.node() != nullptr; });
    if (has_bias) spec.named_arguments["bias"] = {std::move(bias)};
    return {{collective_.input},
            {arguments_of(fusion_.uses, &Product::b)},
            {static_cast<std::int64_t>(collective_.dim)},
            collective_.group};
  }

  [[nodiscard]] Argument::List scaled_arguments() const {
    Argument::List dtypes;
    Argument::List fast;
    for (const GatherUse& use : fusion_.uses) {
      dtypes.push_back(use.product.out_dtype);
      fast.push_back({use.product.fast_accum});
    }
    Node* const scale = fusion_.scale_gather() == nullptr ? fusion_.uses[0].product.a_scale
                                                          : as_collective(*fusion_.scale_gather()).input;
    return {{collective_.input},
            {arguments_of(fusion_.uses, &Product::b)},
            {scale},
            {arguments_of(fusion_.uses, &Product::b_scale)},
            {static_cast<std::int64_t>(collective_.dim)},
            collective_.group,
            {arguments_of(fusion_.uses, &Product::bias)},
            {arguments_of(fusion_.uses, &Product::result_scale)},
            {std::move(dtypes)},
            {std::move(fast)}};
  }

  /// Of what the op makes for a product, or a gather: all but their last sizes are the same.
  [[nodiscard]] TensorType made_for(const Node& node) const {
    const TensorType& type = type_of(node);
    const auto shape = with_last(whole_, type.shape.back());
    const bool is_last = collective_.dim + 1 == shape.size();
    return is_last ? contiguous_type(shape, type.dtype)
                   : type_with_outermost(shape, collective_.dim, type.dtype);
  }

  [[nodiscard]] Tensors types() const {
    Tensors types(1);
    if (needs_whole_) types[0] = made_for(*fusion_.gather);
    for (const GatherUse& use : fusion_.uses) types.push_back(made_for(*use.product.node));
    for (const Node* const beside : fusion_.also_gather) types.push_back(made_for(*beside));
    return types;
  }

  Result<void> take_product(Node& fused, std::int64_t item, const GatherUse& use) {
    Node& product = *use.product.node;
    TANDEM_ASSIGN(Node* const made, item_of(graph_, *fusion_.place, fused, item));
    TANDEM_ASSIGN(Node * instead, reshaped(graph_, *fusion_.place, *made, type_of(product).shape));
    if (use.product.addend != nullptr) {
      // What it adds may itself have been a product of this op.
      TANDEM_ASSIGN(instead, added(product, *instead, *product.arguments()[0].node()));
    }
    graph_.replace_uses(product, *instead);
    return erase_unused(graph_, product);
  }

  Result<Node*> added(Node& product, Node& made, Node& addend) {
    Node& place = Graph::is_before(product, *fusion_.place) ? *fusion_.place : product;  // behind both
    return graph_.insert_before(&place, {.kind = NodeKind::kCall,
                                         .name = graph_.free_name("add"),
                                         .target = std::string(op::kAdd),
                                         .arguments = {{&made}, {&addend}},
                                         .named_arguments = {},
                                         .type = product.type()});
  }

  /// Views of what was gathered come after the fused op, with everything else that uses it.
  Result<void> take_gathered(Node& fused, std::int64_t item, Node& gather) {
    TANDEM_ASSIGN(Node* const made, item_of(graph_, *fusion_.place, fused, item));
    TANDEM_ASSIGN(Node* const whole, contiguous(graph_, *fusion_.place, *made));
    graph_.replace_uses(gather, *whole);
    std::vector<Node*> open{whole};
    while (!open.empty()) {
      const Node* const one = open.back();
      open.pop_back();
      for (Node* const view : one->users()) {
        if (!Graph::is_before(*view, *fusion_.place)) continue;
        graph_.move_before(*view, *fusion_.place);
        open.push_back(view);
      }
    }
    return erase_unused(graph_, gather);
  }

  Graph& graph_;
  const GatherFusion& fusion_;
  Collective collective_;
  std::vector<std::int64_t> whole_;
  bool needs_whole_;  ///< more than the products need what is gathered
};

}  // namespace

Result<void> fuse_gathers(Graph& graph, const FuseOptions& options) {
  const Gathers gathers(graph);
  const OpaqueOps opaque(graph);
  for (const std::string& name : gathers.names()) {
    Node* const gather = graph.find(name);
    if (gather == nullptr) continue;  // another one took it along
    const GatherPlan plan = plan_gather(graph, *gather, gathers, opaque, options);
    if (plan.fusion) TANDEM_TRY(Fusing(graph, *plan.fusion).run());
  }
  return {};
}

}  // namespace tandem::graph
