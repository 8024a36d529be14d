#include <cmath>
#include <nlohmann/json.hpp>
#include <tandem/graph/text.hpp>

#include "base/format.hpp"
#include "graph/ir/words.hpp"

namespace tandem::graph {
namespace {

std::string in_quotes(std::string_view text) {
  return nlohmann::json(text).dump();
}

std::string word(std::string_view text) {
  return is_word(text) ? std::string(text) : in_quotes(text);
}

std::string number(double value) {
  if (!std::isfinite(value)) return std::isnan(value) ? "nan" : value > 0 ? "infinity" : "-infinity";
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";  // or it would be read as an integer
  return text;
}

std::string text_of(const Symbol& symbol) {
  std::string hint = "null";
  if (const auto* const flag = std::get_if<bool>(&symbol.hint)) hint = *flag ? "true" : "false";
  if (const auto* const whole = std::get_if<std::int64_t>(&symbol.hint)) hint = std::to_string(*whole);
  if (const auto* const real = std::get_if<double>(&symbol.hint)) hint = number(*real);
  return fmt::format("{{{} {}}}", in_quotes(symbol.text), hint);
}

std::string entries_of(const Argument::List& list) {
  std::string text;
  for (const Argument& one : list) text += (text.empty() ? "" : ", ") + to_text(one);
  return text;
}

std::string text_of(const std::optional<TensorType>& type) {
  return type ? to_text(*type) : "null";
}

/// With all strides: they have symbols too.
std::string text_of(const SymbolicType::Item& item) {
  struct Visitor {
    std::string operator()(std::monostate) const { return "null"; }
    std::string operator()(const Symbol& symbol) const { return text_of(symbol); }
    std::string operator()(const SymbolicTensor& tensor) const {
      return fmt::format("{}[{}]{{{}}}", word(tensor.dtype), entries_of(tensor.shape),
                         entries_of(tensor.stride));
    }
  };
  return std::visit(Visitor(), item);
}

std::string text_of(const SymbolicType& type) {
  if (!type.is_list) return text_of(type.items[0]);
  std::string text;
  for (const auto& item : type.items) text += (text.empty() ? "" : ", ") + text_of(item);
  return fmt::format("({})", text);
}

std::string text_of(const NodeType& type) {
  if (type.kind == NodeType::Kind::kNone) return "null";
  if (type.kind == NodeType::Kind::kTensor) return text_of(type.tensors[0]);
  std::string text;
  for (const auto& tensor : type.tensors) text += (text.empty() ? "" : ", ") + text_of(tensor);
  return fmt::format("({})", text);
}

std::string arguments_of(const Node& node) {
  std::string text = entries_of(node.arguments());
  for (const auto& [name, value] : node.named_arguments()) {
    text += fmt::format("{}{}={}", text.empty() ? "" : ", ", word(name), to_text(value));
  }
  return text;
}

bool is_keyword(std::string_view target) {
  return target == "placeholder" || target == "get_attr" || target == "output";
}

/// `keyword`, and the target in quotes where it is not the usual one.
std::string keyword_of(const char* keyword, const Node& node, std::string_view usual_target) {
  return node.target() == usual_target ? keyword : fmt::format("{} {}", keyword, in_quotes(node.target()));
}

std::string text_of(const Constant& constant) {
  struct Visitor {
    std::string operator()(std::monostate) const { return "null"; }
    std::string operator()(const Argument::List& elements) const { return to_text(Argument{elements}); }
    std::string operator()(const std::shared_ptr<const Graph>& part) const {
      std::string text = "{\n";
      for (const Node& node : part->nodes()) text += to_text(node) + "\n";
      return text + "}";
    }
    std::string operator()(const Repr& object) const { return to_text(Argument{object}); }
  };
  return std::visit(Visitor(), constant.value);
}

}  // namespace

std::string to_text(const Argument& argument) {
  struct Visitor {
    std::string operator()(std::monostate) const { return "null"; }
    std::string operator()(bool value) const { return value ? "true" : "false"; }
    std::string operator()(std::int64_t value) const { return std::to_string(value); }
    std::string operator()(double value) const { return number(value); }
    std::string operator()(const std::string& value) const { return in_quotes(value); }
    std::string operator()(const Repr& value) const {
      return fmt::format("<{}>", is_plain_repr(value.text) ? value.text : in_quotes(value.text));
    }
    std::string operator()(const Symbol& value) const { return text_of(value); }
    std::string operator()(const Node* value) const { return fmt::format("%{}", word(value->name())); }
    std::string operator()(const Argument::List& list) const { return fmt::format("[{}]", entries_of(list)); }
  };
  return std::visit(Visitor(), argument.value);
}

std::string to_text(const TensorType& type) {
  std::string text =
      fmt::format("{}[{}]", word(type.dtype), fmt::join(type.shape.begin(), type.shape.end(), ", "));
  if (!type.is_contiguous()) {
    text += fmt::format("{{{}}}", fmt::join(type.stride.begin(), type.stride.end(), ", "));
  }
  return text;
}

std::string to_text(const Node& node) {
  std::string what;
  switch (node.kind()) {
    case NodeKind::kPlaceholder:
      what = keyword_of("placeholder", node, node.name());
      break;
    case NodeKind::kAttribute:
      what = keyword_of("get_attr", node, node.name());
      if (node.constant() != nullptr) what += " value " + text_of(*node.constant());
      break;
    case NodeKind::kOutput:
      what = keyword_of("output", node, "output");
      break;
    case NodeKind::kCall:
      what = is_keyword(node.target()) ? in_quotes(node.target()) : word(node.target());
      break;
  }
  const bool has_arguments = !node.arguments().empty() || !node.named_arguments().empty();
  const std::string type = node.symbolic() != nullptr ? text_of(*node.symbolic()) : text_of(node.type());
  return fmt::format("%{}: {} = {}{}", word(node.name()), type, what,
                     node.is_given() && !has_arguments ? "" : fmt::format("({})", arguments_of(node)));
}

std::string to_text(const Graph& graph) {
  const GraphHeader& header = graph.header;
  std::string text = fmt::format("graph world {} group {} source {}\n", header.world_size,
                                 in_quotes(header.group), in_quotes(header.source));
  for (const auto& [op, count] : header.pytorch_fuses)
    text += fmt::format("fuses {} {}\n", in_quotes(op), count);
  for (const auto& [name, group] : header.groups) {
    text +=
        fmt::format("group {} ranks {} {}", in_quotes(name), group.num_ranks, in_quotes(group.description));
    for (const auto& [op, count] : group.collectives) text += fmt::format(" {} {}", in_quotes(op), count);
    text += "\n";
  }
  for (const Node& node : graph.nodes()) text += to_text(node) + "\n";
  return text;
}

}  // namespace tandem::graph
