// For libFuzzer: whatever bytes come, a graph is refused or read; what is read survives its own forms, and
// the passes if it verifies. How to build and run it: docs/design/graph.md.

#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <tandem/graph/dot.hpp>
#include <tandem/graph/fuse.hpp>
#include <tandem/graph/json.hpp>
#include <tandem/graph/text.hpp>
#include <tandem/graph/verify.hpp>

namespace {

void check(bool holds) {
  if (!holds) std::abort();
}

void try_graph(tandem::graph::Graph graph) {
  using namespace tandem::graph;
  const std::string text = to_text(graph);
  const auto again = parse_text(text);
  check(again && to_text(*again) == text);
  const auto from_json = import_json(export_json(graph));
  check(from_json && to_text(*from_json) == text);
  check(!to_dot(graph).empty());
  if (!verify(graph)) return;
  const auto report = fuse(graph);
  check(report && !to_json(*report).empty() && !to_table(*report).empty());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  if (auto graph = tandem::graph::import_json(bytes)) try_graph(*std::move(graph));
  if (auto graph = tandem::graph::parse_text(bytes)) try_graph(*std::move(graph));
  return 0;
}
