#include "command.hpp"

#include <fmt/format.h>

#include "failure.hpp"
#include "harness/problem.hpp"

namespace tandem::cli {

nlohmann::json Command::run_rank(const RankContext& context, const Config&) {
  throw Failure(kFailed, Error(ErrorCode::kInternal,
                               fmt::format("this command has no work for rank {}", context.rank)));
}

void JobFlags::define(CLI::App& app) {
  app.add_option("--ranks", ranks, "Number of ranks (processes); default: by the machine")->type_name("W");
  app.add_option("--backend", backend, "auto, cpu or cuda")->type_name("NAME");
  app.add_flag("--loopback", loopback, "all ranks as threads on GPU 0; also what more ranks than GPUs get");
  app.add_flag("--batch-invariant", batch_invariant,
               "rows have the same bits in every batch, by every algorithm");
  app.add_flag("--nan-check", nan_check, "ops look for NaN in their inputs; the first one ends the run");
}

std::string JobPlace::with_ranks(std::string_view command) const {
  const std::string here = ranks_here == ranks ? "" : fmt::format(", {} of them on this host", ranks_here);
  return fmt::format("{} on {} ranks{}", command, ranks, here);
}

JobPlace JobFlags::choose(const Machine& machine, const std::string& problem) const {
  const bool may_use_gpus = backend != "cpu";
  const int by_machine =
      machine.launched_ranks > 0 ? machine.launched_ranks : default_ranks(machine, may_use_gpus);
  const int by_input = problem.empty() ? by_machine : harness::parse_problem(problem).ranks;
  JobPlace place;
  place.ranks = ranks.value_or(by_input);
  harness::check_ranks(place.ranks, "--ranks");
  place.ranks_here = machine.ranks_here(place.ranks);
  check_launched(machine, place.ranks, ranks || problem.empty() ? "--ranks" : "--problem with ranks");
  place.placement = cli::place(machine, backend, loopback, place.ranks);
  const bool on_cpu = place.placement.kind == DeviceKind::kCpu;
  place.heading =
      fmt::format("backend {}, {}", backend_and_why(machine, place.placement, backend, place.ranks),
                  on_cpu ? ranks_and_why(machine, place.ranks) : ranks_in_words(machine, place.ranks));
  return place;
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
