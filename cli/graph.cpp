#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <tandem/graph/dot.hpp>
#include <tandem/graph/json.hpp>
#include <tandem/graph/passes.hpp>
#include <tandem/graph/text.hpp>

#include "command.hpp"
#include "failure.hpp"
#include "graph_file.hpp"
#include "graph_run.hpp"

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
  [[nodiscard]] int show() const;

  CLI::App* show_app_ = nullptr;
  GraphRun run_;
  std::string file_;
  std::string form_ = "text";
  std::string after_;
};

void GraphCommand::define(CLI::App& app) {
  app.require_subcommand(1);
  show_app_ = app.add_subcommand("show", "A captured program, checked, in another form");
  CLI::App& show = *show_app_;
  show.add_option("file", file_, "the program: JSON as captured, or the text form")->required();
  show.add_option("--form", form_, "text, json or dot (for Graphviz)")
      ->check(CLI::IsMember({"text", "json", "dot"}))
      ->capture_default_str();
  std::vector<std::string> passes;
  for (const graph::Pass& pass : graph::all_passes()) passes.emplace_back(pass.name);
  show.add_option("--after", after_, "show what it is after this pass, and those before it")
      ->check(CLI::IsMember(passes));
  run_.define(*app.add_subcommand("run", "A captured program and its rewritten form, executed on CPU ranks"));
  app.add_subcommand("fuse", "not built yet")->allow_extras()->final_callback([] {
    not_supported("graph fuse is not built yet: graph show and graph run are");
  });
}

int GraphCommand::launch(const Invocation& invocation) {
  return show_app_->parsed() ? show() : run_.launch(invocation);
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

}  // namespace

std::unique_ptr<Command> make_graph() {
  return std::make_unique<GraphCommand>();
}

}  // namespace tandem::cli
