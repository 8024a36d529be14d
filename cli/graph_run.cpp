#include "graph_run.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <tandem/graph/interpreter/execute.hpp>
#include <tandem/graph/passes.hpp>

#include "failure.hpp"
#include "graph_file.hpp"
#include "memory_need.hpp"
#include "outputs.hpp"
#include "session.hpp"

namespace tandem::cli {
namespace {

using graph::interpreter::Difference;

/// What all passes make of the program in the file.
graph::Graph read_rewritten(const std::string& path, const graph::FuseOptions& options) {
  graph::Graph program = read_graph(path);
  take(graph::run_passes(program, graph::all_passes(), {}, options));
  return program;
}

std::int64_t type_bytes(const graph::NodeType& type) {
  std::int64_t sum = 0;
  for (const auto& tensor : type.tensors) {
    const auto dtype = tensor ? graph::dtype_of(tensor->dtype) : std::nullopt;
    if (dtype) sum = sum_of_bytes({sum, times_bytes(size_bytes(*dtype), tensor->numel())});
  }
  return sum;
}

/// Of one rank: inputs stay to the end, and each node makes its values beside them.
std::int64_t bytes_needed(const graph::Graph& program) {
  std::int64_t inputs = 0;
  std::int64_t largest = 0;
  for (const graph::Node& node : program.nodes()) {
    const std::int64_t num_bytes = type_bytes(node.type());
    if (node.is_given()) inputs = sum_of_bytes({inputs, num_bytes});
    if (node.kind() == graph::NodeKind::kCall) largest = std::max(largest, num_bytes);
  }
  return sum_of_bytes({inputs, largest});
}

// ---- what a rank tells the launcher

nlohmann::json to_json(const Difference& difference) {
  nlohmann::json json{
      {"max_error", difference.max_error}, {"bound", difference.bound}, {"largest", difference.largest}};
  if (!std::isfinite(difference.max_error)) json["max_error"] = nullptr;  // JSON has no infinity
  return json;
}

Difference difference_of(const nlohmann::json& json) {
  const nlohmann::json& error = json.at("max_error");
  return {error.is_null() ? std::numeric_limits<double>::infinity() : error.get<double>(),
          json.at("bound").get<double>(), json.at("largest").get<double>()};
}

nlohmann::json to_json(const graph::interpreter::FusedOpResult& fused) {
  nlohmann::json json{{"node", fused.node},
                      {"op", fused.target},
                      {"key", fused.key},
                      {"algorithm", to_string(fused.algorithm)},
                      {"reason", fused.reason},
                      {"trace", fused.trace},
                      {"differences", nlohmann::json::array()}};
  for (const Difference& difference : fused.differences) json["differences"].push_back(to_json(difference));
  return json;
}

nlohmann::json to_json(const graph::interpreter::OutputResult& output) {
  nlohmann::json json{{"node", output.node},
                      {"type", output.type},
                      {"checksum", fmt::format("{:016x}", output.checksum)},
                      {"fault", output.fault},
                      {"not_compared", output.not_compared},
                      {"differences", nlohmann::json::array()}};
  if (output.difference) json["differences"].push_back(to_json(*output.difference));
  return json;
}

// ---- what the launcher makes of it

/// The rank at which a tensor is worst, seen from its bound.
struct Worst {
  Difference difference;
  std::size_t rank = 0;
};

/// Of each tensor of one node, on all ranks that compared it.
std::vector<Worst> worst_of(const std::vector<nlohmann::json>& ranks, const char* kind, std::size_t idx) {
  std::vector<Worst> worst;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    const nlohmann::json& differences = ranks[rank].at(kind).at(idx).at("differences");
    for (std::size_t i = 0; i < differences.size(); ++i) {
      const Difference difference = difference_of(differences[i]);
      if (i == worst.size()) {
        worst.push_back({difference, rank});
        continue;
      }
      const Difference& so_far = worst[i].difference;
      const double excess = difference.max_error - difference.bound;
      if (excess > so_far.max_error - so_far.bound) worst[i] = {difference, rank};
    }
  }
  return worst;
}

std::string in_words(const Worst& worst) {
  const Difference& difference = worst.difference;
  return fmt::format("max error {:.3g} on rank {} (bound {:.3g}, largest {:.3g})", difference.max_error,
                     worst.rank, difference.bound, difference.largest);
}

/// Prints a program's results, and collects what is wrong with them.
class Report {
 public:
  explicit Report(const std::vector<nlohmann::json>& ranks) : ranks_(ranks) {}

  void print_fused() {
    const nlohmann::json& all = ranks_[0].at("fused");
    fmt::print("fused ops: {}\n", all.size());
    for (std::size_t i = 0; i < all.size(); ++i) {
      const std::string name =
          fmt::format("'{}' {}", all[i].at("node").get<std::string>(), all[i].at("op").get<std::string>());
      fmt::print("  {}: {} ({})\n", name, all[i].at("key").get<std::string>(),
                 all[i].at("algorithm").get<std::string>());
      const auto worst = worst_of(ranks_, "fused", i);
      for (std::size_t result = 0; result < worst.size(); ++result) {
        fmt::print("    result {}: {}\n", result, in_words(worst[result]));
        check(fmt::format("fused op {} result {}", name, result), worst[result]);
      }
    }
  }

  void print_outputs() {
    const nlohmann::json& all = ranks_[0].at("outputs");
    fmt::print("outputs: {}\n", all.size());
    for (std::size_t i = 0; i < all.size(); ++i) {
      std::string line = fmt::format("{} '{}' {}:", i, all[i].at("node").get<std::string>(),
                                     all[i].at("type").get<std::string>());
      const std::string name = fmt::format("output {} '{}'", i, all[i].at("node").get<std::string>());
      for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
        const nlohmann::json& output = ranks_[rank].at("outputs").at(i);
        line += " " + output.at("checksum").get<std::string>();
        const auto fault = output.at("fault").get<std::string>();
        if (!fault.empty()) wrong_.push_back(fmt::format("{} on rank {} {}", name, rank, fault));
      }
      line += not_compared(i, name);
      for (const Worst& worst : worst_of(ranks_, "outputs", i)) {
        line += ", " + in_words(worst);
        check(name, worst);
      }
      fmt::print("  {}\n", line);
    }
  }

  [[nodiscard]] const std::vector<std::string>& wrong() const { return wrong_; }
  /// What no rank could compare, if nothing else was compared either.
  [[nodiscard]] const std::vector<std::string>& all_not_compared() const {
    static const std::vector<std::string> kNone;
    return num_compared_ == 0 ? not_compared_ : kNone;
  }

 private:
  /// Of an output, on which ranks it is not compared, and why.
  std::string not_compared(std::size_t idx, const std::string& name) {
    std::string line;
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      const auto why = ranks_[rank].at("outputs").at(idx).at("not_compared").get<std::string>();
      if (why.empty()) continue;
      line += fmt::format(", not compared on rank {}: {}", rank, why);
      not_compared_.push_back(fmt::format("{} on rank {} {}", name, rank, why));
    }
    return line;
  }

  void check(const std::string& name, const Worst& worst) {
    ++num_compared_;
    if (!worst.difference.ok()) wrong_.push_back(fmt::format("{}: {}", name, in_words(worst)));
  }

  const std::vector<nlohmann::json>& ranks_;
  std::vector<std::string> wrong_;
  std::vector<std::string> not_compared_;
  std::size_t num_compared_ = 0;
};

}  // namespace

void GraphRun::define(CLI::App& app) {
  app.add_option("file", file_, "the program: JSON as captured, or the text form")->required();
  app.add_option("--ranks", ranks_, "Number of ranks (processes); default and need: the program's")
      ->type_name("W");
  app.add_option("--seed", seed_, "of the inputs")->capture_default_str();
  app.add_flag(
      "--compare", compare_,
      "also run the program as it is, with serial collectives, and compare: each fused op on the same "
      "operands, and each output");
  app.add_flag("--low-contention", options_.low_contention,
               "run what is not fused beside products, where these take longer");
  app.add_option("--json", json_, "write what ran, and how far it is off, to this file")->type_name("FILE");
}

int GraphRun::launch(const Invocation& invocation) const {
  claim_output("--json", json_);
  const graph::Graph program = read_graph(file_);
  const int ranks = ranks_.value_or(program.header.world_size);
  if (ranks != program.header.world_size) {
    bad_input(fmt::format("--ranks {}: {} is a program of {} ranks; leave out --ranks", ranks, file_,
                          program.header.world_size));
  }
  take(graph::interpreter::check_executable(program));
  const graph::Graph rewritten = read_rewritten(file_, options_);
  take(graph::interpreter::check_executable(rewritten));
  check_memory_need(fmt::format("graph run on {} ranks", ranks), times_bytes(ranks, bytes_needed(program)));
  fmt::print("{}: {} nodes, {} after passes; backend cpu, {} ranks, seed {}\n", file_, program.nodes().size(),
             rewritten.nodes().size(), ranks, seed_);
  const auto others = graph::interpreter::other_groups(program);
  for (const auto& [group, num_ranks] : others) {
    fmt::print("group '{}' of {} ranks is not run: each rank stands for all of them\n", group, num_ranks);
  }
  std::fflush(stdout);

  const auto results = run_job({ranks, invocation.arguments, {}, nullptr}, invocation.jobs);
  Report report(results);
  report.print_fused();
  report.print_outputs();
  if (!json_.empty()) {
    const nlohmann::json all{{"graph", file_},
                             {"seed", seed_},
                             {"compared", compare_},
                             {"other_groups", others},
                             {"ranks", results}};
    // The name of a file may be no UTF-8, which JSON has to be.
    write_output("--json", json_, all.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
  }
  if (!compare_) return kOk;
  if (!report.wrong().empty()) {
    throw Failure(kFailed,
                  Error(ErrorCode::kNumeric, fmt::format("graph run: {} results are wrong; first: {}",
                                                         report.wrong().size(), report.wrong().front())));
  }
  if (!report.all_not_compared().empty()) {
    throw Failure(kFailed,
                  Error(ErrorCode::kNumeric, fmt::format("graph run: nothing could be compared; first: {}",
                                                         report.all_not_compared().front())));
  }
  fmt::print("compared: all results are within their bounds\n");
  return kOk;
}

nlohmann::json GraphRun::run_rank(const RankContext& context, const Config& config) const {
  const graph::Graph program = read_graph(file_);
  const graph::Graph rewritten = read_rewritten(file_, options_);
  const Session session(context, config, "graph run");
  const auto report = take(graph::interpreter::execute(
      program, rewritten, {.seed = seed_, .compare = compare_}, session.group(), session.stream()));
  nlohmann::json json{{"fused", nlohmann::json::array()}, {"outputs", nlohmann::json::array()}};
  for (const auto& fused : report.fused) json["fused"].push_back(to_json(fused));
  for (const auto& output : report.outputs) json["outputs"].push_back(to_json(output));
  return json;
}

}  // namespace tandem::cli
