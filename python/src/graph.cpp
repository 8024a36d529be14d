#include "graph.hpp"

#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <string>
#include <tandem/graph/dot.hpp>
#include <tandem/graph/fuse.hpp>
#include <tandem/graph/graph.hpp>
#include <tandem/graph/json.hpp>
#include <tandem/graph/text.hpp>
#include <tandem/graph/verify.hpp>

#include "errors.hpp"

namespace tandem::python {
namespace {

/// A captured graph. A class of its own: the library's Graph of streams has the same name.
struct PyGraph {
  graph::Graph graph;
};

PyGraph parse(const std::string& text) {
  PyGraph parsed;
  parsed.graph = take_unlocked(
      [&] { return text.starts_with("graph ") ? graph::parse_text(text) : graph::import_json(text); });
  take(graph::verify(parsed.graph));
  return parsed;
}

graph::FuseReport fuse(PyGraph& graph, bool strict, bool cost, bool share_maxima, bool low_contention) {
  const graph::FuseOptions options{
      .strict = strict, .cost = cost, .share_maxima = share_maxima, .low_contention = low_contention};
  return take_unlocked([&] { return graph::fuse(graph.graph, options); });
}

std::optional<std::string> reason_of(const graph::CollectiveReport& report) {
  if (!report.reason) return std::nullopt;
  return std::string(to_string(*report.reason));
}

std::optional<std::string> why_of(const graph::CollectiveReport& report) {
  if (!report.reason) return std::nullopt;
  return std::string(describe(*report.reason));
}

}  // namespace

void bind_graphs(nb::module_& module) {
  using graph::CollectiveReport;
  nb::class_<CollectiveReport>(module, "CollectiveReport",
                               "What became of one collective of a captured graph.")
      .def_ro("node", &CollectiveReport::node, "Its name in the captured graph.")
      .def_prop_ro(
          "kind", [](const CollectiveReport& report) { return std::string(to_string(report.kind)); },
          "\"all_gather\", \"reduce_scatter\" or \"all_reduce\".")
      .def_ro("fused_into", &CollectiveReport::fused_into, "A node of the rewritten graph, or None.")
      .def_prop_ro("reason", &reason_of, "The name of the reason if it is not fused: \"kRightOperand\".")
      .def_prop_ro("why", &why_of, "The reason as a sentence, or None.")
      .def_ro("detail", &CollectiveReport::detail, "The node that is in the way, the other group, or empty.")
      .def_ro("runs_beside", &CollectiveReport::runs_beside,
              "The low-contention collective that it is in the rewritten graph, or None.")
      .def_ro("is_legal", &CollectiveReport::is_legal, "Whether a fusion exists although it is not fused.")
      .def_ro("num_products", &CollectiveReport::num_products,
              "Products that fused ops compute of what it gathers or sums.")
      .def_ro("products_left", &CollectiveReport::products_left,
              "Other products that read what is gathered, if it is fused.")
      .def_ro("bytes", &CollectiveReport::bytes, "Bytes that a rank receives.")
      .def_ro("saved_us", &CollectiveReport::saved_us,
              "Expected on H200s with NVLink; 0 if it is not fused.");
  nb::class_<graph::FuseReport>(module, "FuseReport", "What became of all collectives of a captured graph.")
      .def_ro("collectives", &graph::FuseReport::collectives)
      .def_prop_ro(
          "fused",
          [](const graph::FuseReport& report) {
            nb::dict fused;
            for (const auto& [op, count] : report.fused) fused[op.c_str()] = count;
            return fused;
          },
          "Fused op to the number of collectives in it.")
      .def_prop_ro(
          "complaint", [](const graph::FuseReport& report) { return graph::complaint(report); },
          "What fuse(strict=True) raises, or None.")
      .def("to_json", [](const graph::FuseReport& report) { return graph::to_json(report); })
      .def("to_table", [](const graph::FuseReport& report) { return graph::to_table(report); })
      .def("__str__", [](const graph::FuseReport& report) { return graph::to_table(report); });
  nb::class_<PyGraph>(module, "Graph", "A captured PyTorch program: nodes in the order in which they run.")
      .def_prop_ro("world_size", [](const PyGraph& graph) { return graph.graph.header.world_size; })
      .def_prop_ro("group", [](const PyGraph& graph) { return graph.graph.header.group; })
      .def_prop_ro("source", [](const PyGraph& graph) { return graph.graph.header.source; })
      .def("__len__", [](const PyGraph& graph) { return graph.graph.nodes().size(); })
      .def(
          "to_text", [](const PyGraph& graph) { return graph::to_text(graph.graph); },
          "The text form, which loads() reads.")
      .def(
          "to_json", [](const PyGraph& graph) { return graph::export_json(graph.graph); },
          "The JSON form, which loads() reads.")
      .def(
          "to_dot", [](const PyGraph& graph) { return graph::to_dot(graph.graph); },
          "A picture for Graphviz.");
  module.def("parse_graph", &parse, nb::arg("text"));
  module.def("fuse_graph", &fuse, nb::arg("graph"), nb::arg("strict"), nb::arg("cost"),
             nb::arg("share_maxima"), nb::arg("low_contention"));
}

}  // namespace tandem::python
