#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <tandem/graph/dot.hpp>
#include <tandem/graph/fuse.hpp>
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

constexpr const char* kNotBuilt[] = {"run"};

void write_file(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  if (!file) bad_input(fmt::format("{}: cannot be written", path));
}

class GraphCommand : public Command {
 public:
  void define(CLI::App& app) override;
  int launch(const Invocation& invocation) override;

 private:
  void define_show(CLI::App& app);
  void define_fuse(CLI::App& app);
  [[nodiscard]] int show() const;
  [[nodiscard]] int fuse() const;

  const CLI::App* fuse_app_ = nullptr;
  std::string file_;
  std::string form_ = "text";
  std::string after_;
  graph::FuseOptions options_;
  std::string report_file_;
  std::string out_file_;
};

void GraphCommand::define(CLI::App& app) {
  app.require_subcommand(1);
  define_show(*app.add_subcommand("show", "A captured program, checked, in another form"));
  define_fuse(*app.add_subcommand(
      "fuse", "Put fused ops into a captured program, and say what became of each collective"));
  for (const char* name : kNotBuilt) {
    app.add_subcommand(name, "not built yet")->allow_extras()->final_callback([name] {
      not_supported(fmt::format("graph {} is not built yet: graph show is", name));
    });
  }
}

void GraphCommand::define_show(CLI::App& app) {
  app.add_option("file", file_, "the program: JSON as captured, or the text form")->required();
  app.add_option("--form", form_, "text, json or dot (for Graphviz)")
      ->check(CLI::IsMember({"text", "json", "dot"}))
      ->capture_default_str();
  std::vector<std::string> passes;
  for (const graph::Pass& pass : graph::all_passes()) passes.emplace_back(pass.name);
  app.add_option("--after", after_, "show what it is after this pass, and those before it")
      ->check(CLI::IsMember(passes));
}

void GraphCommand::define_fuse(CLI::App& app) {
  fuse_app_ = &app;
  app.add_option("file", file_, "the program: JSON as captured, or the text form")->required();
  app.add_flag("--strict", options_.strict, "exit code 3 when a legal pair is left, or nothing is fused");
  app.add_flag("--cost", options_.cost, "leave what the cost model expects to lose");
  app.add_flag(
      "--share-maxima", options_.share_maxima,
      "take the maximum of what is gathered from the shards' maxima, by an all-reduce of one number");
  app.add_option("--json", report_file_, "write the report to this file");
  app.add_option("--out", out_file_,
                 "write the rewritten program to this file, in the schema of captured ones");
}

int GraphCommand::launch(const Invocation&) {
  return fuse_app_->parsed() ? fuse() : show();
}

int GraphCommand::show() const {
  graph::Graph program = read_graph(file_);
  if (!after_.empty()) take(graph::run_passes(program, passes_up_to(after_)));
  const std::string text = form_ == "text"   ? graph::to_text(program)
                           : form_ == "json" ? graph::export_json(program)
                                             : graph::to_dot(program);
  std::fwrite(text.data(), 1, text.size(), stdout);
  return kOk;
}

int GraphCommand::fuse() const {
  graph::Graph program = read_graph(file_);
  graph::FuseOptions options = options_;
  options.strict = false;  // the report is printed and written all the same
  const graph::FuseReport report = take(graph::fuse(program, options));
  if (!report_file_.empty()) write_file(report_file_, graph::to_json(report));
  if (!out_file_.empty()) write_file(out_file_, graph::export_json(program));
  fmt::print("{}", graph::to_table(report));
  const auto text = graph::complaint(report);
  if (!options_.strict || !text) return kOk;
  fmt::print(stderr, "tandem: {}\n", *text);
  return kStrict;
}

}  // namespace

std::unique_ptr<Command> make_graph() {
  return std::make_unique<GraphCommand>();
}

}  // namespace tandem::cli
