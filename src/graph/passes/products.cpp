#include "graph/passes/products.hpp"

#include <algorithm>
#include <array>
#include <tandem/base/dtype.hpp>
#include <utility>

#include "graph/ir/ops.hpp"

namespace tandem::graph {
namespace {

Node* node_at(const Node& node, std::size_t idx) {
  return idx < node.arguments().size() ? node.arguments()[idx].node() : nullptr;
}

bool is_one(const Argument& argument) {
  const auto integer = argument.integer();
  const auto* const number = std::get_if<double>(&argument.value);
  return (integer && *integer == 1) || (number != nullptr && *number == 1.0);
}

Product as_addmm(Node& node) {
  Product product{.node = &node,
                  .computed_at = &node,
                  .a = node_at(node, 1),
                  .b = node_at(node, 2),
                  .bias = node_at(node, 0)};
  for (const auto& [name, factor] : node.named_arguments()) product.has_factors |= !is_one(factor);
  const auto& added = type_of(*product.bias).shape;
  const auto& made = type_of(node).shape;
  if (added == made) {
    std::swap(product.bias, product.addend);
  } else {
    product.has_factors |= added.size() != 1 || added[0] != made[1];
  }
  return product;
}

Product as_scaled_mm(Node& node) {
  Product product{.node = &node,
                  .computed_at = &node,
                  .a = node_at(node, 0),
                  .b = node_at(node, 1),
                  .bias = node_at(node, 4),
                  .a_scale = node_at(node, 2),
                  .b_scale = node_at(node, 3),
                  .result_scale = node_at(node, 5)};
  const Argument::List& arguments = node.arguments();
  if (arguments.size() > 6) product.out_dtype = arguments[6];
  const auto* const fast = arguments.size() > 7 ? std::get_if<bool>(&arguments[7].value) : nullptr;
  product.fast_accum = fast != nullptr && *fast;
  return product;
}

}  // namespace

std::vector<Node*> Product::other_operands() const {
  std::vector<Node*> found;
  for (Node* const one : {b, bias, b_scale, result_scale}) {
    if (one != nullptr) found.push_back(one);
  }
  return found;
}

double Product::flops() const {
  const auto& left = type_of(*a).shape;
  return 2.0 * static_cast<double>(left[0]) * static_cast<double>(left[1]) *
         static_cast<double>(type_of(*b).shape[1]);
}

std::optional<Product> as_product(Node& node) {
  if (node.is_call_of(op::kMm))
    return Product{.node = &node, .computed_at = &node, .a = node_at(node, 0), .b = node_at(node, 1)};
  if (node.is_call_of(op::kAddmm)) return as_addmm(node);
  if (node.is_call_of(op::kScaledMm)) return as_scaled_mm(node);
  return std::nullopt;
}

std::size_t left_of(const Node& product) {
  return product.is_call_of(op::kAddmm) ? 1 : 0;
}

std::vector<Product> products_scattered_by(Node& fused) {
  constexpr std::array kOps = {op::kFusedMatmulReduceScatter, op::kFusedScaledMatmulReduceScatter,
                               op::kFusedMatmulAllReduce, op::kFusedScaledMatmulAllReduce};
  if (std::find(kOps.begin(), kOps.end(), fused.target()) == kOps.end()) return {};
  std::vector<Product> products;
  const auto a = fused.arguments()[0].entries();
  const auto b = fused.arguments()[1].entries();
  for (std::size_t i = 0; i < a.size(); ++i) {
    products.push_back({.node = &fused, .computed_at = &fused, .a = a[i].node(), .b = b[i].node()});
  }
  return products;
}

bool is_product_type(std::string_view dtype) {
  return dtype == "float32" || dtype == "bfloat16" || dtype == "float16";
}

const TensorType& type_of(const Node& node) {
  return *node.type().tensor();
}

std::int64_t element_bytes(const TensorType& type) {
  const auto dtype = dtype_of(type.dtype);
  return dtype ? size_bytes(*dtype) : 0;
}

std::size_t dim_from_front(std::int64_t dim, std::size_t num_dims) {
  return static_cast<std::size_t>(dim < 0 ? dim + static_cast<std::int64_t>(num_dims) : dim);
}

Collective as_collective(const Node& node) {
  const Argument::List& arguments = node.arguments();
  if (node.is_call_of(op::kFunctionalAllReduce))
    return {.input = arguments[0].node(), .world = 0, .group = arguments[2]};
  const std::size_t dim = node.is_call_of(op::kAllGather) ? 1 : 2;
  return {arguments[0].node(), dim_from_front(*arguments[dim].integer(), type_of(node).shape.size()),
          *arguments[dim + 1].integer(), arguments[dim + 2]};
}

std::set<std::string> names_of(const Node& collective) {
  return collective.collectives().empty() ? std::set{collective.name()} : collective.collectives();
}

bool is_of_all(const Collective& collective, const GraphHeader& header) {
  const auto* const group = std::get_if<std::string>(&collective.group.value);
  return (collective.world == 0 || collective.world == header.world_size) && group != nullptr &&
         *group == header.group;
}

bool Dependence::of(const Node& node) {
  std::vector<const Node*> open{&node};
  std::vector<const Node*> seen;
  while (!open.empty()) {
    const Node* const one = open.back();
    open.pop_back();
    if (one == &source_) {
      for (const Node* const other : seen) independent_.erase(other);  // not known yet
      return true;
    }
    // Nothing before the source can depend on it.
    if (Graph::is_before(*one, source_) || !independent_.insert(one).second) continue;
    seen.push_back(one);
    for (const Node* const input : one->inputs()) open.push_back(input);
  }
  return false;
}

}  // namespace tandem::graph
