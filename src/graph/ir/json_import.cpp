#include <tandem/graph/json.hpp>

#include <algorithm>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/format.hpp"
#include "base/try.hpp"
#include "graph/ir/limits.hpp"
#include "io/json_value.hpp"

namespace tandem::graph {
namespace {

using Json = nlohmann::json;

// Of the schema itself: the document, its nodes, a node, its arguments.
constexpr int kSchemaDepth = 4;

/// Before the parser sees it: what is nested without end would be freed without end too.
Result<void> check_depth(std::string_view text) {
  int depth = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      if (++depth > kSchemaDepth + 2 * kMaxListDepth) {
        return failf(ErrorCode::kParse, "graph: byte {}: nested deeper than {} lists", i, kMaxListDepth);
      }
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return {};
}

/// Python's own words for numbers that are not finite, which JSON has none for, as the schema has them.
std::string with_known_numbers(std::string_view text) {
  constexpr std::pair<std::string_view, std::string_view> kWords[] = {{"-Infinity", R"({"float":"-inf"})"},
                                                                      {"Infinity", R"({"float":"inf"})"},
                                                                      {"NaN", R"({"float":"nan"})"}};
  std::string known;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size();) {
    if (!in_string) {
      const auto* const found = std::find_if(std::begin(kWords), std::end(kWords), [&](const auto& word) {
        return text.substr(i).starts_with(word.first);
      });
      if (found != std::end(kWords)) {
        known += found->second;
        i += found->first.size();
        continue;
      }
    }
    if (in_string && text[i] == '\\' && i + 1 < text.size()) {
      known += text.substr(i, 2);
      i += 2;
      continue;
    }
    if (text[i] == '"') in_string = !in_string;
    known += text[i++];
  }
  return known;
}

Result<Json> parse(std::string_view text) {
  TANDEM_TRY(check_depth(text));
  const bool has_words =
      text.find("Infinity") != std::string_view::npos || text.find("NaN") != std::string_view::npos;
  auto json = io::parse_json(has_words ? with_known_numbers(text) : text);
  if (json) return json;
  return failf(ErrorCode::kParse, "graph: {}{}", json.error().text(),
               has_words ? R"(; each NaN counts as {"float":"nan"}, and so do the infinities)" : "");
}

/// `object[key]` of the wanted type. Errors: kParse "KEY is missing", "KEY is a string, need an array".
Result<const Json*> member(const Json& object, const char* key, Json::value_t type) {
  const auto found = object.find(key);
  if (found == object.end()) return failf(ErrorCode::kParse, "{} is missing", key);
  if (found->type() != type) {
    return failf(ErrorCode::kParse, "{} is {}, need {}", key, found->type_name(), Json(type).type_name());
  }
  return &*found;
}

Result<std::int64_t> integer_of(const Json& value, std::string_view what) {
  if (!value.is_number_integer()) {
    return failf(ErrorCode::kParse, "{} is {}, need a whole number of 64 bits", what,
                 value.is_number() ? value.dump() : value.type_name());
  }
  if (value.is_number_unsigned() &&
      value.get<std::uint64_t>() > std::uint64_t{std::numeric_limits<std::int64_t>::max()}) {
    return failf(ErrorCode::kParse, "{} is {}, need a whole number of 64 bits", what, value.dump());
  }
  return value.get<std::int64_t>();
}

Result<std::vector<std::int64_t>> integers_of(const Json& object, const char* key) {
  TANDEM_ASSIGN(const Json* const list, member(object, key, Json::value_t::array));
  std::vector<std::int64_t> integers;
  for (const Json& one : *list) {
    TANDEM_ASSIGN(const std::int64_t integer, integer_of(one, key));
    integers.push_back(integer);
  }
  return integers;
}

Result<std::optional<TensorType>> tensor_of(const Json& value) {
  if (value.is_null()) return std::nullopt;
  if (!value.is_object()) {
    return failf(ErrorCode::kParse, "out is {}, need null, a tensor or a list of these", value.type_name());
  }
  TensorType type;
  TANDEM_ASSIGN(type.shape, integers_of(value, "shape"));
  TANDEM_ASSIGN(type.stride, integers_of(value, "stride"));
  TANDEM_ASSIGN(const Json* const dtype, member(value, "dtype", Json::value_t::string));
  type.dtype = dtype->get<std::string>();
  TANDEM_TRY(check_type(type));
  return type;
}

Result<NodeType> type_of(const Json& node) {
  const auto out = node.find("out");
  if (out == node.end()) return fail(ErrorCode::kParse, "out is missing");
  NodeType type;
  if (out->is_array()) {
    type.kind = NodeType::Kind::kList;
    for (const Json& one : *out) {
      TANDEM_ASSIGN(type.tensors.emplace_back(), tensor_of(one));
    }
    return type;
  }
  TANDEM_ASSIGN(auto tensor, tensor_of(*out));
  if (!tensor) return type;
  type.kind = NodeType::Kind::kTensor;
  type.tensors.push_back(std::move(tensor));
  return type;
}

/// Reads nodes into a graph, in order.
class Importer {
 public:
  /// `depth` parts of programs around it.
  explicit Importer(Graph& graph, int depth = 0) : graph_(graph), depth_(depth) {}
  /// Errors: kParse that begins with the node's place and name.
  Result<void> add_all(const Json& nodes);

 private:
  Result<void> add(const Json& json);
  Result<SymbolicType::Item> symbolic_item_of(const Json& json);
  Result<void> add_symbols(const Json& json, NodeSpec& spec);
  Result<Constant> constant_of(const Json& json);
  Result<Argument> argument_of(const Json& json, int depth);
  Result<Argument> object_of(const Json& json);
  Result<NodeSpec> spec_of(const Json& json);

  Graph& graph_;
  int depth_;
};

/// Whether this key is the only one of an object.
bool is_only(const Json& json, const char* key) {
  return json.is_object() && json.size() == 1 && json.contains(key);
}

/// A number that is not finite.
Result<Argument> float_of(const Json& word) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (word == "inf") return Argument{kInfinity};
  if (word == "-inf") return Argument{-kInfinity};
  if (word == "nan") return Argument{std::numeric_limits<double>::quiet_NaN()};
  return failf(ErrorCode::kParse, "float is {}, need \"inf\", \"-inf\" or \"nan\"", word.dump());
}

Result<Argument> symbol_of(const Json& json) {
  TANDEM_ASSIGN(const Json* const text, member(json, "sym", Json::value_t::string));
  Symbol symbol{.text = text->get<std::string>(), .hint = {}};
  const Json& hint = json["hint"];
  if (hint.is_null()) return Argument{std::move(symbol)};
  if (hint.is_boolean()) {
    symbol.hint = hint.get<bool>();
  } else if (hint.is_number_float()) {
    symbol.hint = hint.get<double>();
  } else if (is_only(hint, "float")) {
    TANDEM_ASSIGN(const Argument number, float_of(hint["float"]));
    symbol.hint = std::get<double>(number.value);
  } else {
    TANDEM_ASSIGN(symbol.hint, integer_of(hint, "hint"));
  }
  return Argument{std::move(symbol)};
}

Result<Argument> Importer::object_of(const Json& json) {
  if (is_only(json, "node")) {
    TANDEM_ASSIGN(const Json* const name, member(json, "node", Json::value_t::string));
    Node* const node = graph_.find(name->get_ref<const std::string&>());
    if (node == nullptr) {
      return failf(ErrorCode::kParse, "an argument is '{}', which no earlier node is named",
                   name->get_ref<const std::string&>());
    }
    return Argument{node};
  }
  if (is_only(json, "repr")) {
    TANDEM_ASSIGN(const Json* const text, member(json, "repr", Json::value_t::string));
    return Argument{Repr{text->get<std::string>()}};
  }
  if (json.size() == 2 && json.contains("sym") && json.contains("hint")) return symbol_of(json);
  if (is_only(json, "float")) return float_of(json["float"]);
  return failf(ErrorCode::kParse,
               "an argument is an object of {} keys, need just \"node\", \"repr\" or \"float\", or \"sym\" "
               "and \"hint\"",
               json.size());
}

Result<Argument> Importer::argument_of(const Json& json, int depth) {
  if (depth > kMaxListDepth) return failf(ErrorCode::kParse, "lists nested deeper than {}", kMaxListDepth);
  switch (json.type()) {
    case Json::value_t::null:
      return Argument{};
    case Json::value_t::boolean:
      return Argument{json.get<bool>()};
    case Json::value_t::number_float:
      return Argument{json.get<double>()};
    case Json::value_t::string:
      return Argument{json.get<std::string>()};
    case Json::value_t::object:
      return object_of(json);
    case Json::value_t::array: {
      Argument::List list;
      for (const Json& one : json) {
        TANDEM_ASSIGN(list.emplace_back(), argument_of(one, depth + 1));
      }
      return Argument{std::move(list)};
    }
    default: {
      TANDEM_ASSIGN(const std::int64_t integer, integer_of(json, "an argument"));
      return Argument{integer};
    }
  }
}

Result<NodeSpec> Importer::spec_of(const Json& json) {
  NodeSpec spec;
  TANDEM_ASSIGN(const Json* const op, member(json, "op", Json::value_t::string));
  const auto& kind = op->get_ref<const std::string&>();
  if (kind == "placeholder") {
    spec.kind = NodeKind::kPlaceholder;
  } else if (kind == "output") {
    spec.kind = NodeKind::kOutput;
  } else if (kind == "get_attr") {
    spec.kind = NodeKind::kAttribute;
  } else if (kind != "call_function") {
    return failf(ErrorCode::kParse, "op is '{}', need placeholder, get_attr, call_function or output", kind);
  }
  TANDEM_ASSIGN(const Json* const target, member(json, "target", Json::value_t::string));
  spec.target = target->get<std::string>();
  TANDEM_ASSIGN(const Json* const arguments, member(json, "args", Json::value_t::array));
  for (const Json& one : *arguments) {
    TANDEM_ASSIGN(spec.arguments.emplace_back(), argument_of(one, 1));
  }
  TANDEM_ASSIGN(const Json* const named, member(json, "kwargs", Json::value_t::object));
  for (const auto& [name, value] : named->items()) {
    TANDEM_ASSIGN(spec.named_arguments[name], argument_of(value, 1));
  }
  TANDEM_ASSIGN(spec.type, type_of(json));
  TANDEM_TRY(add_symbols(json, spec));
  if (const auto constant = json.find("constant");
      constant != json.end() && spec.kind == NodeKind::kAttribute) {
    TANDEM_ASSIGN(Constant value, constant_of(*constant));
    spec.constant = std::make_shared<const Constant>(std::move(value));
  }
  return spec;
}

Result<SymbolicType::Item> Importer::symbolic_item_of(const Json& json) {
  if (json.is_null()) return SymbolicType::Item();
  if (!json.is_object()) {
    return failf(ErrorCode::kParse, "symbolic is {}, need null, a symbol, a tensor or a list of these",
                 json.type_name());
  }
  if (json.contains("sym")) {
    TANDEM_ASSIGN(Argument symbol, argument_of(json, 1));
    return std::get<Symbol>(std::move(symbol.value));
  }
  SymbolicTensor tensor;
  for (const auto& [key, list] : {std::pair("shape", &tensor.shape), std::pair("stride", &tensor.stride)}) {
    TANDEM_ASSIGN(const Json* const sizes, member(json, key, Json::value_t::array));
    for (const Json& size : *sizes) {
      TANDEM_ASSIGN(list->emplace_back(), argument_of(size, 1));
    }
  }
  TANDEM_ASSIGN(const Json* const dtype, member(json, "dtype", Json::value_t::string));
  tensor.dtype = dtype->get<std::string>();
  return SymbolicType::Item(std::move(tensor));
}

Result<void> Importer::add_symbols(const Json& json, NodeSpec& spec) {
  const auto symbolic = json.find("symbolic");
  if (symbolic == json.end()) return {};
  SymbolicType type{.is_list = symbolic->is_array(), .items = {}};
  if (type.is_list) {
    for (const Json& one : *symbolic) {
      TANDEM_ASSIGN(type.items.emplace_back(), symbolic_item_of(one));
    }
  } else {
    TANDEM_ASSIGN(type.items.emplace_back(), symbolic_item_of(*symbolic));
  }
  TANDEM_ASSIGN(const NodeType hinted, type.hinted());
  if (hinted != spec.type) return fail(ErrorCode::kParse, "out is not symbolic with its hints");
  if (type.has_symbols()) spec.symbolic = std::make_shared<const SymbolicType>(std::move(type));
  return {};
}

Result<Constant> Importer::constant_of(const Json& json) {
  if (is_only(json, "repr")) {
    TANDEM_ASSIGN(const Json* const text, member(json, "repr", Json::value_t::string));
    return Constant{Repr{text->get<std::string>()}};
  }
  if (is_only(json, "elements")) {
    TANDEM_ASSIGN(Argument elements, argument_of(json["elements"], 1));
    if (std::holds_alternative<std::monostate>(elements.value)) return Constant{};
    if (elements.list() == nullptr) return fail(ErrorCode::kParse, "elements is no list, nor null");
    TANDEM_TRY(check_elements(*elements.list()));
    return Constant{std::get<Argument::List>(std::move(elements.value))};
  }
  if (is_only(json, "nodes")) {
    TANDEM_ASSIGN(const Json* const nodes, member(json, "nodes", Json::value_t::array));
    if (depth_ == kMaxPartDepth)
      return failf(ErrorCode::kParse, "parts nested deeper than {}", kMaxPartDepth);
    Graph part;
    TANDEM_TRY(Importer(part, depth_ + 1).add_all(*nodes));
    return Constant{std::make_shared<const Graph>(std::move(part))};
  }
  return fail(ErrorCode::kParse, "constant is not an object of just \"elements\", \"nodes\" or \"repr\"");
}

Result<void> Importer::add_all(const Json& nodes) {
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    if (const auto added = add(nodes[i]); !added) {
      return failf(ErrorCode::kParse, "node {} {}", i, added.error().text());
    }
  }
  return {};
}

Result<void> Importer::add(const Json& json) {
  if (!json.is_object()) return failf(ErrorCode::kParse, "is {}, need an object", json.type_name());
  TANDEM_ASSIGN(const Json* const name, member(json, "name", Json::value_t::string));
  auto spec = spec_of(json);
  if (spec) {
    spec->name = name->get<std::string>();
    auto added = graph_.add(*std::move(spec));
    if (added) return {};
    spec = tl::unexpected(std::move(added).error());
  }
  return failf(ErrorCode::kParse, "'{}': {}", name->get_ref<const std::string&>(), spec.error().text());
}

using Counts = std::map<std::string, std::int64_t, std::less<>>;

/// Whole numbers by name. There are none where the key is missing, or null.
Result<Counts> counts_of(const Json& object, const char* key) {
  Counts counts;
  const auto found = object.find(key);
  if (found == object.end() || found->is_null()) return counts;
  TANDEM_ASSIGN(const Json* const all, member(object, key, Json::value_t::object));
  for (const auto& [name, count] : all->items()) {
    TANDEM_ASSIGN(counts[name], integer_of(count, key));
  }
  return counts;
}

Result<ProcessGroup> group_of(const Json& json) {
  ProcessGroup group;
  if (!json.is_object() || !json.contains("ranks")) return fail(ErrorCode::kParse, "ranks is missing");
  TANDEM_ASSIGN(group.num_ranks, integer_of(json["ranks"], "ranks"));
  if (group.num_ranks < 1 || group.num_ranks > kMaxWorldSize) {
    return failf(ErrorCode::kParse, "ranks is {}, need 1 to {}", group.num_ranks, kMaxWorldSize);
  }
  TANDEM_ASSIGN(const Json* const description, member(json, "description", Json::value_t::string));
  group.description = description->get<std::string>();
  TANDEM_ASSIGN(group.collectives, counts_of(json, "collectives"));
  return group;
}

/// Those that the file lists, if it does.
Result<std::map<std::string, ProcessGroup, std::less<>>> groups_of(const Json& json) {
  std::map<std::string, ProcessGroup, std::less<>> groups;
  const auto listed = json.find("groups");
  if (listed == json.end()) return groups;
  TANDEM_ASSIGN(const Json* const all, member(json, "groups", Json::value_t::object));
  for (const auto& [name, about] : all->items()) {
    auto group = group_of(about);
    if (!group) return failf(ErrorCode::kParse, "group '{}': {}", name, group.error().text());
    groups.emplace(name, *std::move(group));
  }
  return groups;
}

Result<GraphHeader> header_of(const Json& json) {
  if (!json.is_object()) return failf(ErrorCode::kParse, "is {}, need an object", json.type_name());
  GraphHeader header;
  const auto schema = json.find("schema");
  if (schema == json.end() || *schema != 1) {
    return failf(ErrorCode::kParse, "schema is {}, need 1",
                 schema == json.end() ? "missing" : schema->dump());
  }
  TANDEM_ASSIGN(const Json* const source, member(json, "source", Json::value_t::string));
  header.source = source->get<std::string>();
  TANDEM_ASSIGN(const Json* const group, member(json, "group", Json::value_t::string));
  header.group = group->get<std::string>();
  if (!json.contains("world_size")) return fail(ErrorCode::kParse, "world_size is missing");
  TANDEM_ASSIGN(const std::int64_t world_size, integer_of(json["world_size"], "world_size"));
  if (world_size < 1 || world_size > kMaxWorldSize) {
    return failf(ErrorCode::kParse, "world_size is {}, need 1 to {}", world_size, kMaxWorldSize);
  }
  header.world_size = static_cast<int>(world_size);
  TANDEM_ASSIGN(header.pytorch_fuses, counts_of(json, "pytorch_fuses"));
  TANDEM_ASSIGN(header.groups, groups_of(json));
  return header;
}

}  // namespace

Result<Graph> import_json(std::string_view text) {
  TANDEM_ASSIGN(const Json json, parse(text));
  auto header = header_of(json);
  if (!header) return failf(ErrorCode::kParse, "graph: {}", header.error().text());
  Graph graph;
  graph.header = *std::move(header);
  const auto nodes = member(json, "nodes", Json::value_t::array);
  if (!nodes) return failf(ErrorCode::kParse, "graph: {}", nodes.error().text());
  if (const auto added = Importer(graph).add_all(**nodes); !added) {
    return failf(ErrorCode::kParse, "graph: {}", added.error().text());
  }
  return graph;
}

}  // namespace tandem::graph
