// How long it takes to read a captured program, to rewrite it, and to write it again: layers one after the
// other, at sizes that show whether the time is linear. Each is measured as it is, and with an op behind each
// layer that tandem does not know.
//   bench_graph_passes [--layer FILE]... [NODES...]   prints a JSON row for each; medians in milliseconds of
//   CPU time
// A layer is a captured program. Without any it is a gather, a product, relu, a product and a scatter.

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <tandem/graph/fuse.hpp>
#include <tandem/graph/json.hpp>
#include <tandem/graph/text.hpp>
#include <tandem/graph/verify.hpp>
#include <tandem/tandem.hpp>
#include <vector>

#include "base/try.hpp"
#include "harness/stopwatch.hpp"

namespace {

using namespace tandem;

struct Layer {
  std::string name;
  graph::Graph graph;
};

constexpr std::string_view kChain = R"(graph world 8 group "0" source ""
%x: bfloat16[256, 64] = placeholder
%up: bfloat16[64, 32] = placeholder
%down: bfloat16[32, 64] = placeholder
%gather: bfloat16[2048, 64] = _c10d_functional.all_gather_into_tensor.default(%x, 8, "0")
%all: bfloat16[2048, 64] = _c10d_functional.wait_tensor.default(%gather)
%hidden: bfloat16[2048, 32] = aten.mm.default(%all, %up)
%active: bfloat16[2048, 32] = aten.relu.default(%hidden)
%part: bfloat16[2048, 64] = aten.mm.default(%active, %down)
%scatter: bfloat16[256, 64] = _c10d_functional.reduce_scatter_tensor.default(%part, "sum", 8, "0")
%y: bfloat16[256, 64] = _c10d_functional.wait_tensor.default(%scatter)
%output: (bfloat16[256, 64]) = output([%y])
)";

using NodeMap = std::map<const graph::Node*, graph::Node*>;

graph::Argument mapped(const graph::Argument& argument, const NodeMap& nodes) {
  if (argument.node() != nullptr) return {nodes.at(argument.node())};
  if (argument.list() == nullptr) return argument;
  graph::Argument::List list;
  for (const graph::Argument& one : *argument.list()) list.push_back(mapped(one, nodes));
  return {std::move(list)};
}

/// A copy of a node of a layer, whose arguments are among `nodes`.
graph::NodeSpec copy_of(const graph::Node& node, int layer, const NodeMap& nodes) {
  graph::NodeSpec spec{.kind = node.kind(),
                       .name = fmt::format("{}_{}", node.name(), layer),
                       .target = node.target(),
                       .type = node.type()};
  for (const graph::Argument& argument : node.arguments()) spec.arguments.push_back(mapped(argument, nodes));
  for (const auto& [name, argument] : node.named_arguments())
    spec.named_arguments[name] = mapped(argument, nodes);
  return spec;
}

/// Layers, each with weights of its own. The first input of each is the last output of the one before that is
/// like it, and all outputs are the program's.
Result<graph::Graph> program_of(const Layer& layer, std::size_t num_nodes, bool with_unknown_ops) {
  const auto num_layers = static_cast<int>(std::max<std::size_t>(1, num_nodes / layer.graph.nodes().size()));
  const graph::Node& x = layer.graph.nodes().front();
  graph::Graph program;
  program.header = layer.graph.header;
  std::vector<NodeMap> nodes(static_cast<std::size_t>(num_layers) + 1);
  for (int i = 0; i < num_layers; ++i) {
    for (const graph::Node& node : layer.graph.nodes()) {
      if (!node.is_given() || (&node == &x && i > 0)) continue;
      TANDEM_ASSIGN(nodes[static_cast<std::size_t>(i)][&node], program.add(copy_of(node, i, {})));
    }
  }
  graph::Argument::List outputs;
  for (int i = 0; i < num_layers; ++i) {
    NodeMap& own = nodes[static_cast<std::size_t>(i)];
    graph::Node*& next = nodes[static_cast<std::size_t>(i) + 1][&x];
    for (const graph::Node& node : layer.graph.nodes()) {
      if (node.kind() != graph::NodeKind::kCall) continue;
      TANDEM_ASSIGN(own[&node], program.add(copy_of(node, i, own)));
    }
    for (const graph::Argument& output : layer.graph.nodes().back().arguments().front().entries()) {
      outputs.push_back(mapped(output, own));
      if (output.node() != nullptr && output.node()->type() == x.type()) next = own.at(output.node());
    }
    if (next == nullptr)
      return tl::unexpected(
          Error(ErrorCode::kInvalidArgument, layer.name + ": no output is like its first input"));
    if (!with_unknown_ops) continue;
    TANDEM_ASSIGN(next, program.add({.name = fmt::format("unknown_{}", i),
                                     .target = "my.op",
                                     .arguments = {{next}},
                                     .type = x.type()}));
  }
  TANDEM_TRY(program.add({.kind = graph::NodeKind::kOutput,
                          .name = "output",
                          .target = "output",
                          .arguments = {{std::move(outputs)}}}));
  return program;
}

/// Of this process: what else runs on the machine does not count.
double cpu_ms() {
  return 1000.0 * static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
}

Result<nlohmann::json> measure(const Layer& layer, std::size_t num_nodes, bool with_unknown_ops) {
  constexpr std::size_t kFewNodes = 100'000;
  TANDEM_ASSIGN(const graph::Graph captured, program_of(layer, num_nodes, with_unknown_ops));
  const std::string json = graph::export_json(captured);
  std::vector<double> read_ms;
  std::vector<double> fuse_ms;
  std::vector<double> write_ms;
  std::size_t num_fused = 0;
  std::size_t num_collectives = 0;
  for (int i = 0; i < (num_nodes < kFewNodes ? 7 : 3); ++i) {
    double start = cpu_ms();
    TANDEM_ASSIGN(graph::Graph program, graph::import_json(json));
    TANDEM_TRY(graph::verify(program));
    read_ms.push_back(cpu_ms() - start);
    start = cpu_ms();
    TANDEM_ASSIGN(const graph::FuseReport report, graph::fuse(program));
    fuse_ms.push_back(cpu_ms() - start);
    start = cpu_ms();
    const std::string written = graph::export_json(program);
    write_ms.push_back(cpu_ms() - start);
    num_collectives = report.collectives.size();
    num_fused =
        static_cast<std::size_t>(std::count_if(report.collectives.begin(), report.collectives.end(),
                                               [](const auto& one) { return one.fused_into.has_value(); }));
  }
  return nlohmann::json{{"layer", layer.name},
                        {"unknown_ops", with_unknown_ops},
                        {"nodes", captured.nodes().size()},
                        {"collectives", num_collectives},
                        {"fused", num_fused},
                        {"p50_read_ms", harness::median(read_ms)},
                        {"p50_fuse_ms", harness::median(fuse_ms)},
                        {"p50_write_ms", harness::median(write_ms)}};
}

Result<Layer> read_layer(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  const std::string read = text.str();
  TANDEM_ASSIGN(graph::Graph layer,
                read.starts_with("graph ") ? graph::parse_text(read) : graph::import_json(read));
  return Layer{std::filesystem::path(path).stem().string(), std::move(layer)};
}

/// Prints the rows of a layer.
Result<void> measure_all(const Layer& layer, const std::vector<std::size_t>& sizes,
                         const nlohmann::json& about) {
  for (const std::size_t size : sizes) {
    for (const bool with_unknown_ops : {false, true}) {
      TANDEM_ASSIGN(nlohmann::json row, measure(layer, size, with_unknown_ops));
      row.update(about);
      std::printf("%s\n", row.dump().c_str());
      std::fflush(stdout);
    }
  }
  return {};
}

Result<void> run(int argc, char** argv) {
  std::vector<std::string> files;
  std::vector<std::size_t> sizes;
  std::string command = "bench_graph_passes";
  for (int i = 1; i < argc; ++i) {
    command += std::string(" ") + argv[i];
    if (std::string_view(argv[i]) == "--layer" && i + 1 < argc) {
      files.emplace_back(argv[++i]);
    } else {
      sizes.push_back(static_cast<std::size_t>(std::max(std::atoi(argv[i]), 1)));
    }
  }
  if (sizes.empty()) sizes = {200, 20'000, 300'000};
  const auto cpu = open_device({DeviceKind::kCpu, 0}, Config{});
  const nlohmann::json about{
      {"machine", cpu ? (*cpu)->description() : ""}, {"commit", TANDEM_COMMIT}, {"command", command}};
  if (files.empty()) {
    TANDEM_ASSIGN(graph::Graph chain, graph::parse_text(kChain));
    return measure_all({"chain", std::move(chain)}, sizes, about);
  }
  for (const std::string& file : files) {
    TANDEM_ASSIGN(const Layer layer, read_layer(file));
    TANDEM_TRY(measure_all(layer, sizes, about));
  }
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  const auto done = run(argc, argv);
  if (done) return 0;
  std::fprintf(stderr, "bench_graph_passes: %s\n", done.error().to_string().c_str());
  return 1;
}
