#include <tandem/graph/dot.hpp>
#include <tandem/graph/text.hpp>

#include "base/format.hpp"
#include "graph/ir/ops.hpp"

namespace tandem::graph {
namespace {

std::string escaped(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    result += c == '\n' ? ' ' : c;
  }
  return result;
}

std::string_view colour_of(const Node& node) {
  if (node.kind() != NodeKind::kCall) return "gray90";
  const std::string& target = node.target();
  if (op::is_fused(target) || target.starts_with("tandem.")) return "palegreen";
  if (target.starts_with("_c10d_functional.")) return "lightsalmon";
  if (target == op::kMm || target == op::kAddmm || target == op::kScaledMm) return "lightskyblue";
  return "white";
}

std::string label_of(const Node& node) {
  if (node.kind() != NodeKind::kCall) return node.name();
  return fmt::format("{}\\n{}", escaped(node.name()), escaped(node.target()));
}

}  // namespace

std::string to_dot(const Graph& graph) {
  std::string text = "digraph program {\n  node [shape=box, style=filled, fontname=monospace];\n";
  for (const Node& node : graph.nodes()) {
    text += fmt::format("  \"{}\" [label=\"{}\", fillcolor={}];\n", escaped(node.name()), label_of(node),
                        colour_of(node));
  }
  for (const Node& node : graph.nodes()) {
    for (const Node* const input : node.inputs()) {
      const TensorType* const type = input->type().tensor();
      text += fmt::format("  \"{}\" -> \"{}\" [label=\"{}\"];\n", escaped(input->name()),
                          escaped(node.name()), type == nullptr ? "" : escaped(to_text(*type)));
    }
  }
  return text + "}\n";
}

}  // namespace tandem::graph
