#include <tandem/graph/passes.hpp>

#include "base/try.hpp"
#include "graph/ir/ops.hpp"
#include "graph/ir/shards.hpp"
#include "graph/passes/edits.hpp"
#include "graph/passes/scatter_fusion.hpp"

namespace tandem::graph {
namespace {

/// One argument for one product, a list for several.
Argument one_or_list(Argument::List list) {
  return list.size() == 1 ? std::move(list[0]) : Argument{std::move(list)};
}

Argument or_null(Node* node) {
  return node == nullptr ? Argument{} : Argument{node};
}

/// Builds the fused op of a plan, and takes its parts out of the graph.
class Fusing {
 public:
  Fusing(Graph& graph, const ScatterFusion& fusion)
      : graph_(graph), fusion_(fusion), collective_(as_collective(*fusion.scatter)) {}

  Result<void> run() {
    TANDEM_ASSIGN(Node* const fused, insert());
    if (!fusion_.returns_product) {
      graph_.replace_uses(*fusion_.result, *fused);
      return erase_unused(graph_, *fusion_.result);
    }
    Node& place = *fusion_.sum;
    TANDEM_ASSIGN(Node* const scattered, item_of(graph_, place, *fused, 0));
    TANDEM_ASSIGN(Node* const product, item_of(graph_, place, *fused, 1));
    TANDEM_ASSIGN(Node* const instead, reshaped(graph_, place, *product, type_of(place).shape, &place));
    graph_.replace_uses(*fusion_.result, *scattered);
    TANDEM_TRY(erase_unused(graph_, *fusion_.result));
    graph_.replace_uses(place, *instead);
    return erase_unused(graph_, place);
  }

 private:
  [[nodiscard]] std::string_view fused_op() const {
    if (fusion_.gives_all())
      return fusion_.is_scaled() ? op::kFusedScaledMatmulAllReduce : op::kFusedMatmulAllReduce;
    return fusion_.is_scaled() ? op::kFusedScaledMatmulReduceScatter : op::kFusedMatmulReduceScatter;
  }

  /// Where the products' values are needed: before the sum, behind all operands.
  Result<Node*> insert() {
    const std::string_view target = fused_op();
    NodeSpec spec{.kind = NodeKind::kCall,
                  .name = graph_.free_name(short_name(target)),
                  .target = std::string(target),
                  .arguments = {},
                  .named_arguments = {},
                  .type = fusion_.scatter->type(),
                  .collectives = fusion_.scatter->collectives()};
    if (spec.collectives.empty()) spec.collectives.insert(fusion_.scatter->name());  // as it was captured
    TANDEM_TRY(add_operands(spec));
    const TensorType& whole = type_of(*collective_.input);
    spec.type.tensors[0] = contiguous_type(type_of(*fusion_.scatter).shape, whole.dtype);
    const bool is_whole = fusion_.gives_all() || whole.shape[collective_.dim] % collective_.world == 0;
    if (!is_whole) spec.named_arguments[std::string(kPadded)] = {true};
    if (fusion_.returns_product) {
      spec.named_arguments["return_product"] = {true};
      spec.type.kind = NodeType::Kind::kList;
      spec.type.tensors.emplace_back(contiguous_type(whole.shape, whole.dtype));
    }
    return graph_.insert_before(fusion_.sum, std::move(spec));
  }

  /// Left operands, and columns of scales, have the leading dims of what is reduced.
  Result<void> add_operands(NodeSpec& spec) {
    const auto& whole = type_of(*collective_.input).shape;
    Argument::List a, b, a_scale, b_scale, bias, result_scale, fast;
    bool has_bias = false;
    for (const Product& term : fusion_.terms) {
      TANDEM_ASSIGN(Node* const left,
                    reshaped(graph_, *fusion_.sum, *term.a, with_last(whole, type_of(*term.a).shape.back()),
                             collective_.input));
      Node* scale = term.a_scale;
      if (scale != nullptr && type_of(*scale).numel() != 1) {
        TANDEM_ASSIGN(scale, reshaped(graph_, *fusion_.sum, *scale, with_last(whole, 1), collective_.input));
      }
      a.push_back({left});
      b.push_back({term.b});
      a_scale.push_back(or_null(scale));
      b_scale.push_back(or_null(term.b_scale));
      Node* row = term.bias;
      if (row != nullptr) {
        TANDEM_ASSIGN(row, reshaped(graph_, *fusion_.sum, *row, {whole.back()}));
      }
      bias.push_back(or_null(row));
      result_scale.push_back(or_null(term.result_scale));
      fast.push_back({term.fast_accum});
      has_bias = has_bias || term.bias != nullptr;
    }
    const Argument dim{static_cast<std::int64_t>(collective_.dim)};
    const Argument& reduce_op = fusion_.scatter->arguments()[1];
    const bool scatters = !fusion_.gives_all();
    const auto add = [&](Argument argument) { spec.arguments.push_back(std::move(argument)); };
    add(one_or_list(std::move(a)));
    add(one_or_list(std::move(b)));
    if (!fusion_.is_scaled()) {
      add(reduce_op);
      if (scatters) add(dim);
      add(collective_.group);
      if (has_bias) spec.named_arguments["bias"] = one_or_list(std::move(bias));
      return {};
    }
    add(one_or_list(std::move(a_scale)));
    add(one_or_list(std::move(b_scale)));
    add(reduce_op);
    if (scatters) {
      add(dim);
      add(dim);
    }
    add(collective_.group);
    if (scatters) add({*sizes_for(graph_, whole, collective_.input, *fusion_.sum)});
    add(one_or_list(std::move(bias)));
    add(one_or_list(std::move(result_scale)));
    add({Repr{"torch." + type_of(*collective_.input).dtype}});
    add(one_or_list(std::move(fast)));
    return {};
  }

  Graph& graph_;
  const ScatterFusion& fusion_;
  Collective collective_;
};

}  // namespace

Result<void> fuse_scatters(Graph& graph, const FuseOptions& options) {
  std::vector<Node*> scatters;
  for (Node& node : graph.nodes()) {
    if (node.is_call_of(op::kReduceScatter) || node.is_call_of(op::kFunctionalAllReduce))
      scatters.push_back(&node);
  }
  const OpaqueOps opaque(graph);
  for (Node* const scatter : scatters) {
    const ScatterPlan plan = plan_scatter(graph, *scatter, opaque, options);
    if (plan.fusion) TANDEM_TRY(Fusing(graph, *plan.fusion).run());
  }
  return {};
}

}  // namespace tandem::graph
