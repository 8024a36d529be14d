#include "graph_file.hpp"

#include <fmt/format.h>

#include <tandem/graph/json.hpp>
#include <tandem/graph/text.hpp>
#include <tandem/graph/verify.hpp>

#include "failure.hpp"
#include "io/regular_file.hpp"

namespace tandem::cli {

graph::Graph read_graph(const std::string& path) {
  constexpr std::size_t kMostBytes = std::size_t{1} << 30;
  const std::string text = take_input(io::read_small_file(path, kMostBytes), path);
  auto read = text.starts_with("graph ") ? graph::parse_text(text) : graph::import_json(text);
  graph::Graph program = take_input(std::move(read), path);
  if (auto ok = graph::verify(program); !ok) bad_input(fmt::format("{}: {}", path, ok.error().text()));
  return program;
}

}  // namespace tandem::cli
