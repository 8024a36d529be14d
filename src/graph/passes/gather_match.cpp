#include "graph/passes/gather_match.hpp"

#include <algorithm>
#include <tandem/base/dtype.hpp>

#include "graph/ir/ops.hpp"
#include "graph/passes/edits.hpp"
#include "graph/passes/row_local.hpp"
#include "graph/passes/why_not_gather.hpp"

namespace tandem::graph {
namespace {

bool is_number(const Node& node) {
  return type_of(node).numel() == 1;
}

/// The gather above a value that is computed from one row by row, or null.
Node* gather_above(Node& node) {
  Node* above = &node;
  while (!above->is_call_of(op::kAllGather)) {
    if (above->kind() != NodeKind::kCall || above->arguments().empty()) return nullptr;
    above = above->arguments()[0].node();
    if (above == nullptr || above->type().tensor() == nullptr) return nullptr;
  }
  return above;
}

/// One gather, and what hangs on it.
struct Source {
  Node& gather;
  const GraphHeader& header;
  const OpaqueOps& opaque;
  Collective collective;
  RowLocal local;
  Dependence dependence;
  std::unordered_map<const Node*, RowLocal> scales = {};  ///< by the gather that brings them

  Source(Node& node, const GraphHeader& graph_header, const OpaqueOps& opaque_ops)
      : gather(node),
        header(graph_header),
        opaque(opaque_ops),
        collective(as_collective(node)),
        local(node, graph_header, opaque_ops),
        dependence(node) {}
};

/// Finds how the scale of a use comes; false if it can't be taken.
bool find_scale(Source& source, GatherUse& use) {
  Node& scale = *use.product.a_scale;
  if (source.local.contains(scale)) {
    use.mode = ScaleMode::kRowwiseSharded;
    use.scale_gather = &source.gather;
    use.is_scale_computed = true;
    return true;
  }
  if (source.dependence.of(scale)) return false;
  if (is_number(scale)) {
    use.mode = ScaleMode::kTensorwise;
    return true;
  }
  Node* const above = gather_above(scale);
  const bool has_whole_rows = source.collective.dim + 1 != type_of(source.gather).shape.size();
  if (above != nullptr && above != &source.gather && has_whole_rows && run_together(source.gather, *above)) {
    const RowLocal& local =
        source.scales.try_emplace(above, *above, source.header, source.opaque).first->second;
    if (local.contains(scale)) {
      use.mode = ScaleMode::kRowwiseSharded;
      use.scale_gather = above;
      use.is_scale_computed = !local.is_view(scale);
      return true;
    }
  }
  use.mode = ScaleMode::kRowwiseReplicated;
  return true;
}

/// The use of `operand` by a product, if a fused op can make it.
std::optional<GatherUse> find_use(Source& source, Node& operand, Node& user) {
  const auto product = as_product(user);
  if (!product || product->a != &operand || product->has_factors || user.users().empty()) return std::nullopt;
  GatherUse use{.product = *product};
  use.is_operand_cast = !source.local.is_view(operand);
  if (use.is_operand_cast && element_bytes(operand) >= element_bytes(source.gather)) return std::nullopt;
  if (type_of(operand).shape.back() != type_of(source.gather).shape.back()) return std::nullopt;
  const std::string& dtype = type_of(operand).dtype;
  const bool is_f8 = dtype == "float8_e4m3fn" || dtype == "float8_e5m2";
  if (!(product->is_scaled() ? is_f8 : is_product_type(dtype))) return std::nullopt;
  for (const Node* const other : product->other_operands()) {
    if (source.dependence.of(*other)) return std::nullopt;
  }
  if (product->is_scaled() && !find_scale(source, use)) return std::nullopt;
  return use;
}

}  // namespace

std::string_view to_string(ScaleMode mode) {
  switch (mode) {
    case ScaleMode::kTensorwise:
      return "tensorwise";
    case ScaleMode::kRowwiseSharded:
      return "rowwise_sharded";
    case ScaleMode::kRowwiseReplicated:
      return "rowwise_replicated";
    default:
      return "none";
  }
}

bool run_together(const Node& a, const Node& b) {
  const Collective one = as_collective(a);
  const Collective other = as_collective(b);
  const auto& shape = type_of(a).shape;
  return one.dim == other.dim && one.world == other.world && one.group == other.group &&
         type_of(b).shape.size() == shape.size() && with_last(type_of(b).shape, shape.back()) == shape;
}

OpaqueOps::Values values_of(const Product& product, const Node& gather) {
  OpaqueOps::Values values{as_collective(gather).input, &gather, product.a, product.a_scale, product.addend};
  for (const Node* const other : product.other_operands()) values.push_back(other);
  return values;
}

GatherMatch match_gather(Node& gather, const GraphHeader& header, const OpaqueOps& opaque,
                         Explains explains) {
  Source source(gather, header, opaque);
  if (!is_of_all(source.collective, header)) return {{}, {Reason::kOtherGroup, nullptr}};
  if (type_of(gather).shape.empty()) return {{}, {Reason::kNoProduct, nullptr}};
  GatherMatch match;
  for (Node* const node : source.local.nodes()) {
    if (type_of(gather).shape.size() < 2) break;  // no left operand
    for (Node* const user : node->users()) {
      auto use = find_use(source, *node, *user);
      if (!use || opaque.between(gather, *user, values_of(use->product, gather))) continue;
      match.uses.push_back(*std::move(use));
    }
  }
  std::sort(match.uses.begin(), match.uses.end(), [](const GatherUse& a, const GatherUse& b) {
    return Graph::is_before(*a.product.node, *b.product.node);
  });
  if (match.uses.empty() && explains == Explains::kYes)
    match.why_not = why_not_gather(gather, source.local, opaque);
  return match;
}

}  // namespace tandem::graph
