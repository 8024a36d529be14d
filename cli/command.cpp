#include "command.hpp"

#include <fmt/format.h>

#include "failure.hpp"
#include "problem.hpp"

namespace tandem::cli {

nlohmann::json Command::run_rank(const RankContext& context, const Config&) {
  throw Failure(kFailed, Error(ErrorCode::kInternal,
                               fmt::format("this command has no work for rank {}", context.rank)));
}

void JobFlags::define(CLI::App& app) {
  app.add_option("--ranks", ranks, "Number of ranks (processes); default: by the machine")->type_name("W");
  app.add_option("--backend", backend, "auto, cpu or cuda")->type_name("NAME");
}

void JobFlags::check(const Machine& machine) const {
  if (backend == "cuda") {
    not_supported(machine.has_gpu_driver
                      ? "backend cuda: this build has no CUDA backend; use --backend cpu"
                      : "backend cuda: no GPU driver found on this machine; use --backend cpu");
  }
  if (backend != "auto" && backend != "cpu") {
    bad_input(fmt::format("--backend '{}': need auto, cpu or cuda", backend));
  }
}

int JobFlags::chosen_ranks(const Machine& machine, const std::string& problem) const {
  const int by_input = problem.empty() ? default_ranks(machine) : parse_problem(problem).ranks;
  const int chosen = ranks.value_or(by_input);
  check_ranks(chosen, "--ranks");
  return chosen;
}

std::string JobFlags::heading(const Machine& machine, int num_ranks) const {
  return fmt::format("backend {}, {}", backend_and_why(machine, backend), ranks_and_why(machine, num_ranks));
}

void problem_stands_alone(CLI::App& app, const std::vector<std::string>& flags) {
  app.parse_complete_callback([&app, flags] {
    if (app.count("--problem") == 0) return;
    for (const std::string& flag : flags) {
      if (app.count(flag) == 0) continue;
      bad_input(fmt::format("{}: a --problem line says it already; leave out one of the two", flag));
    }
  });
}

}  // namespace tandem::cli
