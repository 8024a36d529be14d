#pragma once

#include <CLI/App.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <tandem/base/config.hpp>
#include <tandem/bootstrap/launcher.hpp>
#include <vector>

#include "machine.hpp"
#include "rank_job.hpp"

namespace tandem::cli {

/// What a command gets when it runs in the process that the user started.
struct Invocation {
  std::vector<std::string> arguments;  ///< without the program name
  Config config;
  Machine machine;
  JobMeans jobs;
  Tracing* tracing = nullptr;  ///< for the command's jobs; null: they are not traced
};

/// A subcommand. The launcher process checks everything and prints; ranks parse the same flags and do the
/// work.
class Command {
 public:
  virtual ~Command() = default;
  /// Adds the flags.
  virtual void define(CLI::App& app) = 0;
  /// Returns the exit code; throws Failure.
  virtual int launch(const Invocation& invocation) = 0;
  /// The work of one rank; what it returns reaches the launcher through run_job().
  virtual nlohmann::json run_rank(const RankContext& context, const Config& config);
};

/// How many ranks, and where.
struct JobPlace {
  int ranks = 1;
  int ranks_here = 1;  ///< of them on this host
  Placement placement;
  std::string heading;  ///< "backend cpu (...), 4 ranks (...)": the first line of every report

  /// Of memory that all ranks need together the part of this host's ranks.
  [[nodiscard]] std::int64_t part_here(std::int64_t num_bytes) const {
    return ranks_here == ranks ? num_bytes : num_bytes / ranks * ranks_here;
  }
  /// "bench on 4 ranks", "bench on 4 ranks, 2 of them on this host": who needs memory.
  [[nodiscard]] std::string with_ranks(std::string_view command) const;
};

/// The flags of every command that starts ranks.
struct JobFlags {
  std::optional<int> ranks;  ///< unset: by the machine
  std::string backend = "auto";
  bool loopback = false;
  bool batch_invariant = false;
  bool nan_check = false;

  void define(CLI::App& app);
  /// What the environment says, and these flags.
  [[nodiscard]] Config config_of(Config config) const {
    config.batch_invariant = config.batch_invariant || batch_invariant;
    config.nan_check = config.nan_check || nan_check;
    return config;
  }
  /// Number and place of the ranks: as asked for, or as `problem` says where there is one, or by the machine.
  /// Throws exit 2 for a backend or a number that makes no sense, exit 4 for one that is not there.
  [[nodiscard]] JobPlace choose(const Machine& machine, const std::string& problem = "") const;
};

/// Refuses --problem beside flags whose values it holds: one of the two would be ignored.
void problem_stands_alone(CLI::App& app, const std::vector<std::string>& flags);

[[nodiscard]] std::unique_ptr<Command> make_demo();
[[nodiscard]] std::unique_ptr<Command> make_run();
[[nodiscard]] std::unique_ptr<Command> make_bench();
[[nodiscard]] std::unique_ptr<Command> make_check();
[[nodiscard]] std::unique_ptr<Command> make_tune();
[[nodiscard]] std::unique_ptr<Command> make_plan();
[[nodiscard]] std::unique_ptr<Command> make_doctor();
[[nodiscard]] std::unique_ptr<Command> make_graph();
[[nodiscard]] std::unique_ptr<Command> make_program();
/// Only says how to trace: main() takes `trace` off the command line.
[[nodiscard]] std::unique_ptr<Command> make_trace();
/// In a rank: the names of the GPUs, or why there are none.
[[nodiscard]] std::unique_ptr<Command> make_list_gpus();

}  // namespace tandem::cli
