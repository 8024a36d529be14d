// How long the passes take: a tensor-parallel chain of layers, each a gather, two products and a scatter, is
// read, verified and rewritten, at sizes that show whether the time is linear.
//   bench_graph_passes [LAYERS...]   prints a JSON row for each; medians in milliseconds

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <tandem/graph/fuse.hpp>
#include <tandem/graph/text.hpp>
#include <tandem/tandem.hpp>
#include <vector>

#include "base/try.hpp"
#include "harness/stopwatch.hpp"

namespace {

using namespace tandem;

std::string chain_of(int layers) {
  std::string text =
      "graph world 8 group \"0\" source \"\"\n"
      "%x0: bfloat16[256, 64] = placeholder\n"
      "%up: bfloat16[64, 32] = placeholder\n"
      "%down: bfloat16[32, 64] = placeholder\n";
  for (int i = 0; i < layers; ++i) {
    text += fmt::format(
        "%gather{0}: bfloat16[2048, 64] = _c10d_functional.all_gather_into_tensor.default(%x{0}, 8, \"0\")\n"
        "%all{0}: bfloat16[2048, 64] = _c10d_functional.wait_tensor.default(%gather{0})\n"
        "%hidden{0}: bfloat16[2048, 32] = aten.mm.default(%all{0}, %up)\n"
        "%active{0}: bfloat16[2048, 32] = aten.relu.default(%hidden{0})\n"
        "%part{0}: bfloat16[2048, 64] = aten.mm.default(%active{0}, %down)\n"
        "%scatter{0}: bfloat16[256, 64] = _c10d_functional.reduce_scatter_tensor.default(%part{0}, "
        "\"sum\", 8, \"0\")\n"
        "%x{1}: bfloat16[256, 64] = _c10d_functional.wait_tensor.default(%scatter{0})\n",
        i, i + 1);
  }
  return text + fmt::format("%output: (bfloat16[256, 64]) = output([%x{}])\n", layers);
}

double ms_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

Result<nlohmann::json> measure(int layers) {
  constexpr int kRounds = 7;
  const std::string text = chain_of(layers);
  std::vector<double> read_ms;
  std::vector<double> fuse_ms;
  std::size_t num_nodes = 0;
  for (int i = 0; i < kRounds; ++i) {
    const auto start = std::chrono::steady_clock::now();
    TANDEM_ASSIGN(graph::Graph program, graph::parse_text(text));
    read_ms.push_back(ms_since(start));
    num_nodes = program.nodes().size();
    const auto read = std::chrono::steady_clock::now();
    TANDEM_ASSIGN(const graph::FuseReport report, graph::fuse(program));
    fuse_ms.push_back(ms_since(read));
    for (const graph::CollectiveReport& collective : report.collectives) {
      if (!collective.fused_into)
        return tl::unexpected(Error(ErrorCode::kInternal, collective.node + " was not fused"));
    }
  }
  return nlohmann::json{
      {"what", "a chain of gather, product, relu, product, scatter: read; verified and rewritten"},
      {"layers", layers},
      {"nodes", num_nodes},
      {"p50_read_ms", harness::median(read_ms)},
      {"p50_fuse_ms", harness::median(fuse_ms)}};
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<int> layers;
  for (int i = 1; i < argc; ++i) layers.push_back(std::atoi(argv[i]));
  if (layers.empty()) layers = {10, 100, 1000, 3000};
  const auto cpu = open_device({DeviceKind::kCpu, 0}, Config{});
  std::string command = "bench_graph_passes";
  for (int i = 1; i < argc; ++i) command += std::string(" ") + argv[i];
  for (const int count : layers) {
    auto row = measure(std::max(count, 1));
    if (!row) {
      std::fprintf(stderr, "bench_graph_passes: %s\n", row.error().to_string().c_str());
      return 1;
    }
    (*row)["machine"] = cpu ? (*cpu)->description() : "";
    (*row)["commit"] = TANDEM_COMMIT;
    (*row)["command"] = command;
    std::printf("%s\n", row->dump().c_str());
  }
  return 0;
}
