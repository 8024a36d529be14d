#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <tandem/graph/dot.hpp>
#include <tandem/graph/json.hpp>
#include <tandem/graph/passes.hpp>
#include <tandem/graph/text.hpp>
#include <tandem/graph/verify.hpp>

#include "command.hpp"
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

/// Either form: the text form begins with its keyword.
graph::Graph read_graph(const std::string& path) {
  const std::string text = read_file(path);
  auto read = text.starts_with("graph ") ? graph::parse_text(text) : graph::import_json(text);
  graph::Graph program = take_input(std::move(read), path);
  if (auto ok = graph::verify(program); !ok) bad_input(fmt::format("{}: {}", path, ok.error().text()));
  return program;
}

std::span<const graph::Pass> passes_up_to(std::string_view name) {
  const auto passes = graph::all_passes();
  const auto found =
      std::find_if(passes.begin(), passes.end(), [&](const graph::Pass& pass) { return pass.name == name; });
  return passes.first(static_cast<std::size_t>(found - passes.begin()) + 1);
}

constexpr const char* kNotBuilt[] = {"fuse", "run"};

class GraphCommand : public Command {
 public:
  void define(CLI::App& app) override;
  int launch(const Invocation& invocation) override;

 private:
  std::string file_;
  std::string form_ = "text";
  std::string after_;
};

void GraphCommand::define(CLI::App& app) {
  app.require_subcommand(1);
  CLI::App& show = *app.add_subcommand("show", "A captured program, checked, in another form");
  show.add_option("file", file_, "the program: JSON as captured, or the text form")->required();
  show.add_option("--form", form_, "text, json or dot (for Graphviz)")
      ->check(CLI::IsMember({"text", "json", "dot"}))
      ->capture_default_str();
  std::vector<std::string> passes;
  for (const graph::Pass& pass : graph::all_passes()) passes.emplace_back(pass.name);
  show.add_option("--after", after_, "show what it is after this pass, and those before it")
      ->check(CLI::IsMember(passes));
  for (const char* name : kNotBuilt) {
    app.add_subcommand(name, "not built yet")->allow_extras()->final_callback([name] {
      not_supported(fmt::format("graph {} is not built yet: graph show is", name));
    });
  }
}

int GraphCommand::launch(const Invocation&) {
  graph::Graph program = read_graph(file_);
  if (!after_.empty()) take(graph::run_passes(program, passes_up_to(after_)));
  const std::string text = form_ == "text"   ? graph::to_text(program)
                           : form_ == "json" ? graph::export_json(program)
                                             : graph::to_dot(program);
  std::fwrite(text.data(), 1, text.size(), stdout);
  return kOk;
}

}  // namespace

std::unique_ptr<Command> make_graph() {
  return std::make_unique<GraphCommand>();
}

}  // namespace tandem::cli
