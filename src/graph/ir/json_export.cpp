#include <cmath>
#include <nlohmann/json.hpp>
#include <tandem/graph/json.hpp>

namespace tandem::graph {
namespace {

// Keys in the order of the schema, not of the alphabet.
using Json = nlohmann::ordered_json;

Json json_of_float(double value) {
  if (std::isfinite(value)) return value;
  return {{"float", std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf"}};
}

Json json_of(const Symbol& symbol) {
  Json hint;
  if (const auto* const flag = std::get_if<bool>(&symbol.hint)) hint = *flag;
  if (const auto* const whole = std::get_if<std::int64_t>(&symbol.hint)) hint = *whole;
  if (const auto* const real = std::get_if<double>(&symbol.hint)) hint = json_of_float(*real);
  return {{"sym", symbol.text}, {"hint", std::move(hint)}};
}

Json json_of(const Argument& argument) {
  struct Visitor {
    Json operator()(std::monostate) const { return nullptr; }
    Json operator()(bool value) const { return value; }
    Json operator()(std::int64_t value) const { return value; }
    Json operator()(double value) const { return json_of_float(value); }
    Json operator()(const std::string& value) const { return value; }
    Json operator()(const Repr& value) const { return {{"repr", value.text}}; }
    Json operator()(const Symbol& value) const { return json_of(value); }
    Json operator()(const Node* value) const { return {{"node", value->name()}}; }
    Json operator()(const Argument::List& list) const {
      Json json = Json::array();
      for (const Argument& one : list) json.push_back(json_of(one));
      return json;
    }
  };
  return std::visit(Visitor(), argument.value);
}

Json json_of(const std::optional<TensorType>& type) {
  if (!type) return nullptr;
  return {{"shape", type->shape}, {"stride", type->stride}, {"dtype", type->dtype}};
}

Json json_of(const NodeType& type) {
  if (type.kind == NodeType::Kind::kNone) return nullptr;
  if (type.kind == NodeType::Kind::kTensor) return json_of(type.tensors[0]);
  Json json = Json::array();
  for (const auto& tensor : type.tensors) json.push_back(json_of(tensor));
  return json;
}

Json json_of(const SymbolicType::Item& item) {
  struct Visitor {
    Json operator()(std::monostate) const { return nullptr; }
    Json operator()(const Symbol& symbol) const { return json_of(symbol); }
    Json operator()(const SymbolicTensor& tensor) const {
      return {{"shape", json_of(Argument{tensor.shape})},
              {"stride", json_of(Argument{tensor.stride})},
              {"dtype", tensor.dtype}};
    }
  };
  return std::visit(Visitor(), item);
}

Json json_of(const SymbolicType& type) {
  if (!type.is_list) return json_of(type.items[0]);
  Json json = Json::array();
  for (const auto& item : type.items) json.push_back(json_of(item));
  return json;
}

Json json_of(const Node& node);

Json json_of(const Constant& constant) {
  struct Visitor {
    Json operator()(std::monostate) const { return {{"elements", nullptr}}; }
    Json operator()(const Argument::List& elements) const {
      return {{"elements", json_of(Argument{elements})}};
    }
    Json operator()(const std::shared_ptr<const Graph>& part) const {
      Json nodes = Json::array();
      for (const Node& node : part->nodes()) nodes.push_back(json_of(node));
      return {{"nodes", std::move(nodes)}};
    }
    Json operator()(const Repr& object) const { return json_of(Argument{object}); }
  };
  return std::visit(Visitor(), constant.value);
}

const char* op_of(NodeKind kind) {
  switch (kind) {
    case NodeKind::kPlaceholder:
      return "placeholder";
    case NodeKind::kAttribute:
      return "get_attr";
    case NodeKind::kCall:
      return "call_function";
    case NodeKind::kOutput:
      return "output";
  }
  return "?";
}

Json json_of(const Node& node) {
  Json named = Json::object();
  for (const auto& [name, argument] : node.named_arguments()) named[name] = json_of(argument);
  Json json = {{"name", node.name()},        {"op", op_of(node.kind())},
               {"target", node.target()},    {"args", json_of(Argument{node.arguments()})},
               {"kwargs", std::move(named)}, {"out", json_of(node.type())}};
  if (node.symbolic() != nullptr) json["symbolic"] = json_of(*node.symbolic());
  if (node.constant() != nullptr) json["constant"] = json_of(*node.constant());
  return json;
}

Json json_of(const ProcessGroup& group) {
  return {{"ranks", group.num_ranks}, {"description", group.description}, {"collectives", group.collectives}};
}

}  // namespace

std::string export_json(const Graph& graph) {
  Json header = {{"schema", 1},
                 {"source", graph.header.source},
                 {"world_size", graph.header.world_size},
                 {"group", graph.header.group},
                 {"pytorch_fuses", graph.header.pytorch_fuses}};
  for (const auto& [name, group] : graph.header.groups) header["groups"][name] = json_of(group);
  std::string text = header.dump();
  text.pop_back();  // the brace that closes it
  text += ",\"nodes\":[";
  const char* separator = "\n";
  for (const Node& node : graph.nodes()) {
    text += separator;
    text += json_of(node).dump();
    separator = ",\n";
  }
  return text + "\n]}\n";
}

}  // namespace tandem::graph
