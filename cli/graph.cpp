#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <tandem/graph/dot.hpp>
#include <tandem/graph/fuse.hpp>
#include <tandem/graph/json.hpp>
#include <tandem/graph/passes.hpp>
#include <tandem/graph/text.hpp>

#include "command.hpp"
#include "failure.hpp"
#include "graph_file.hpp"
#include "graph_run.hpp"
#include "outputs.hpp"

namespace tandem::cli {
namespace {

std::span<const graph::Pass> passes_up_to(std::string_view name) {
  const auto passes = graph::all_passes();
  const auto found =
      std::find_if(passes.begin(), passes.end(), [&](const graph::Pass& pass) { return pass.name == name; });
  return passes.first(static_cast<std::size_t>(found - passes.begin()) + 1);
}

class GraphCommand : public Command {
 public:
  void define(CLI::App& app) override;
  int launch(const Invocation& invocation) override;
  nlohmann::json run_rank(const RankContext& context, const Config& config) override {
    return run_.run_rank(context, config);
  }

 private:
  void define_show(CLI::App& app);
  void define_fuse(CLI::App& app);
  [[nodiscard]] int show() const;
  [[nodiscard]] int fuse() const;

  const CLI::App* fuse_app_ = nullptr;
  const CLI::App* run_app_ = nullptr;
  GraphRun run_;
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
  CLI::App* const run = app.add_subcommand("run", "A captured program and its rewritten form, on CPU ranks");
  run_.define(*run);
  run_app_ = run;
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
  app.add_flag("--low-contention", options_.low_contention,
               "run what is not fused beside products, where these take longer");
  app.add_option("--json", report_file_, "write the report to this file");
  app.add_option("--out", out_file_,
                 "write the rewritten program to this file, in the schema of captured ones");
}

int GraphCommand::launch(const Invocation& invocation) {
  if (run_app_->parsed()) return run_.launch(invocation);
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
  claim_output("--json", report_file_);
  claim_output("--out", out_file_);
  graph::Graph program = read_graph(file_);
  graph::FuseOptions options = options_;
  options.strict = false;  // the report is printed and written all the same
  const graph::FuseReport report = take(graph::fuse(program, options));
  if (!report_file_.empty()) write_output("--json", report_file_, graph::to_json(report));
  if (!out_file_.empty()) write_output("--out", out_file_, graph::export_json(program));
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
