#include <cmath>
#include <nlohmann/json.hpp>
#include <tandem/graph/json.hpp>

namespace tandem::graph {
namespace {

// Keys in the order of the schema, not of the alphabet.
using Json = nlohmann::ordered_json;

Json json_of(const Argument& argument) {
  struct Visitor {
    Json operator()(std::monostate) const { return nullptr; }
    Json operator()(bool value) const { return value; }
    Json operator()(std::int64_t value) const { return value; }
    Json operator()(double value) const {
      if (std::isfinite(value)) return value;
      return {{"float", std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf"}};
    }
    Json operator()(const std::string& value) const { return value; }
    Json operator()(const Repr& value) const { return {{"repr", value.text}}; }
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
  return {{"name", node.name()},        {"op", op_of(node.kind())},
          {"target", node.target()},    {"args", json_of(Argument{node.arguments()})},
          {"kwargs", std::move(named)}, {"out", json_of(node.type())}};
}

}  // namespace

std::string export_json(const Graph& graph) {
  Json header = {{"schema", 1},
                 {"source", graph.header.source},
                 {"world_size", graph.header.world_size},
                 {"group", graph.header.group},
                 {"pytorch_fuses", graph.header.pytorch_fuses}};
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
