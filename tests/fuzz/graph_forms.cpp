#include <optional>
#include <tandem/graph/dot.hpp>
#include <tandem/graph/fuse.hpp>
#include <tandem/graph/json.hpp>
#include <tandem/graph/text.hpp>
#include <tandem/graph/verify.hpp>

#include "fuzz/check.hpp"
#include "fuzz/parsers.hpp"

namespace tandem::fuzz {
namespace {

/// What is read survives its own forms, and the passes if it verifies.
void check_graph(graph::Graph graph) {
  using namespace tandem::graph;
  const std::string text = to_text(graph);
  const auto from_text = parse_text(text);
  check(from_text && to_text(*from_text) == text, "another graph in its own text form");
  const auto from_json = import_json(export_json(graph));
  check(from_json && to_text(*from_json) == text, "another graph in its own JSON");
  check(!to_dot(graph).empty(), "no picture");
  if (const auto ok = verify(graph); !ok) {
    check_refusal(ok.error().text(), {"graph: node ", "graph: need one output"});
    return;
  }
  const auto report = fuse(graph);
  check(report && !to_json(*report).empty() && !to_table(*report).empty(), "a verified graph is not fused");
  check(verify(graph).has_value(), "a fused graph does not verify");
  const auto fused = parse_text(to_text(graph));
  check(fused && to_text(*fused) == to_text(graph), "another fused graph in its own text form");
}

}  // namespace

bool try_graph_forms(std::string_view bytes) {
  auto from_json = graph::import_json(bytes);
  auto from_text = graph::parse_text(bytes);
  if (!from_json) check_refusal(from_json.error().text(), {"graph: "});
  if (!from_text) check_refusal(from_text.error().text(), {"graph text: line "});
  const bool is_read = from_json || from_text;
  if (from_json) check_graph(*std::move(from_json));
  if (from_text) check_graph(*std::move(from_text));
  return is_read;
}

}  // namespace tandem::fuzz
