#include "graph_file.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <tandem/graph/json.hpp>
#include <tandem/graph/text.hpp>
#include <tandem/graph/verify.hpp>

#include "failure.hpp"

namespace tandem::cli {
namespace {

constexpr std::uintmax_t kMaxFileBytes = std::uintmax_t{1} << 30;

std::string read_file(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) {
    bad_input(fmt::format("{}: {}; need a graph's JSON or text", path,
                          error ? error.message() : std::string("is no regular file")));
  }
  const auto num_bytes = std::filesystem::file_size(path, error);
  if (error || num_bytes > kMaxFileBytes) {
    bad_input(fmt::format("{}: {} bytes, need at most {}", path, num_bytes, kMaxFileBytes));
  }
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file) bad_input(fmt::format("{}: cannot be read", path));
  return text.str();
}

}  // namespace

graph::Graph read_graph(const std::string& path) {
  const std::string text = read_file(path);
  auto read = text.starts_with("graph ") ? graph::parse_text(text) : graph::import_json(text);
  graph::Graph program = take_input(std::move(read), path);
  if (auto ok = graph::verify(program); !ok) bad_input(fmt::format("{}: {}", path, ok.error().text()));
  return program;
}

void write_file(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  if (!file) bad_input(fmt::format("{}: cannot be written", path));
}

}  // namespace tandem::cli
