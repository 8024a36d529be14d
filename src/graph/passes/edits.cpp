#include "graph/passes/edits.hpp"

#include "base/format.hpp"
#include "base/try.hpp"
#include "graph/ir/ops.hpp"
#include "graph/ir/signatures.hpp"
#include "graph/passes/products.hpp"

namespace tandem::graph {

Result<void> erase_unused(Graph& graph, Node& node) {
  std::vector<Node*> open{&node};
  while (!open.empty()) {
    Node* const one = open.back();
    open.pop_back();
    if (!one->users().empty() || !is_known_op(*one)) continue;
    for (Node* const input : one->inputs()) {
      if (input->users().size() == 1) open.push_back(input);  // `one`; it can be there only once
    }
    TANDEM_TRY(graph.erase(*one));
  }
  return {};
}

Result<void> replace_by(Graph& graph, Node& node, Node& instead, Node& heir) {
  const std::string name = node.name();
  graph.replace_uses(node, instead);
  TANDEM_TRY(erase_unused(graph, node));
  return graph.find(name) == nullptr ? graph.rename(heir, name) : Result<void>();
}

namespace {

/// The reshape that gave a node its sizes: element-wise ops keep those of what they take.
const Node* reshape_above(const Node* node) {
  while (node != nullptr && (node->is_call_of(op::kAdd) || node->is_call_of(op::kConvert))) {
    const Node* above = nullptr;
    for (const Argument& one : node->arguments()) {
      const Node* const taken = one.node();
      const bool has_all = taken != nullptr && taken->type().tensor() != nullptr &&
                           type_of(*taken).shape == type_of(*node).shape;
      if (above == nullptr && has_all) above = taken;
    }
    node = above;
  }
  const bool is_reshape = node != nullptr && (node->is_call_of(op::kReshape) || node->is_call_of(op::kView));
  return is_reshape ? node : nullptr;
}

}  // namespace

std::optional<Argument::List> sizes_for(const Graph& graph, const std::vector<std::int64_t>& shape,
                                        const Node* like, const Node& place) {
  if (!graph.has_symbols()) return list_of(shape);
  if (shape.size() <= 2) {
    Argument::List sizes = list_of(shape);
    sizes[0] = {std::int64_t{-1}};  // whatever there are
    return sizes;
  }
  like = reshape_above(like);
  if (like == nullptr) return std::nullopt;
  Argument::List sizes = *like->arguments()[1].list();
  if (sizes.size() != shape.size()) return std::nullopt;
  sizes.back() = {shape.back()};
  for (const Argument& one : sizes) {
    if (one.node() != nullptr && !Graph::is_before(*one.node(), place)) return std::nullopt;
  }
  return sizes;
}

Result<Node*> reshaped(Graph& graph, Node& place, Node& node, const std::vector<std::int64_t>& shape,
                       const Node* like) {
  if (type_of(node).shape == shape) return &node;
  auto sizes = sizes_for(graph, shape, like, place);
  if (!sizes) {
    return failf(ErrorCode::kInternal, "graph: '{}' is reshaped to sizes that nobody can name", node.name());
  }
  TensorType type = contiguous_type(shape, type_of(node).dtype);
  return graph.insert_before(&place, {.name = graph.free_name("reshape"),
                                      .target = std::string(op::kReshape),
                                      .arguments = {{&node}, {*std::move(sizes)}},
                                      .named_arguments = {},
                                      .type = {NodeType::Kind::kTensor, {std::move(type)}}});
}

Result<Node*> contiguous(Graph& graph, Node& place, Node& node) {
  const TensorType& type = type_of(node);
  if (type.is_contiguous()) return &node;
  return graph.insert_before(&place,
                             {.kind = NodeKind::kCall,
                              .name = graph.free_name("clone"),
                              .target = std::string(op::kClone),
                              .arguments = {{&node}},
                              .named_arguments = {{"memory_format", {Repr{"torch.contiguous_format"}}}},
                              .type = {NodeType::Kind::kTensor, {contiguous_type(type.shape, type.dtype)}}});
}

Result<Node*> item_of(Graph& graph, Node& place, Node& node, std::int64_t idx) {
  return graph.insert_before(
      &place, {.name = graph.free_name("getitem"),
               .target = std::string(op::kGetItem),
               .arguments = {{&node}, {idx}},
               .named_arguments = {},
               .type = {NodeType::Kind::kTensor, {node.type().tensors[static_cast<std::size_t>(idx)]}}});
}

std::vector<std::int64_t> with_last(std::vector<std::int64_t> leading, std::int64_t last) {
  leading.back() = last;
  return leading;
}

TensorType contiguous_type(std::vector<std::int64_t> shape, std::string_view dtype) {
  std::vector<std::int64_t> stride = contiguous_stride(shape);
  return {std::move(shape), std::move(stride), std::string(dtype)};
}

TensorType type_with_outermost(std::vector<std::int64_t> shape, std::size_t dim, std::string_view dtype) {
  std::vector<std::int64_t> moved = shape;
  moved.erase(moved.begin() + static_cast<std::ptrdiff_t>(dim));
  moved.insert(moved.begin(), shape[dim]);
  std::vector<std::int64_t> stride = contiguous_stride(moved);
  const std::int64_t outermost = stride[0];
  stride.erase(stride.begin());
  stride.insert(stride.begin() + static_cast<std::ptrdiff_t>(dim), outermost);
  return {std::move(shape), std::move(stride), std::string(dtype)};
}

Argument::List list_of(const std::vector<std::int64_t>& integers) {
  Argument::List list;
  for (const std::int64_t one : integers) list.push_back({one});
  return list;
}

}  // namespace tandem::graph
