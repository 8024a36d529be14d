#pragma once

#include <chrono>
#include <cstdio>
#include <string>
#include <tandem/tandem.hpp>
#include <vector>

namespace tandem::bench {

/// What a program starts as ranks of itself.
struct LaunchedRanks {
  const char* program;
  int ranks = 2;
  std::chrono::minutes longest{5};
  const char* refusal = nullptr;  ///< of the arguments; null if they are fine
};

/// The rest of main(): this process is a rank that was launched and runs `run_rank(context)`, or it launches
/// them with its own arguments. Returns the exit status.
template <class RunRank>
int run_launched(const LaunchedRanks& what, int argc, char** argv, RunRank run_rank) {
  const auto fail_with = [&](const Error& error) {
    std::fprintf(stderr, "%s: %s\n", what.program, error.to_string().c_str());
    return 1;
  };
  const auto context = join_job(argc, argv);
  if (!context) return fail_with(context.error());
  if (*context) {
    const auto ran = run_rank(**context);
    if (ran) return 0;
    report_failure(**context, ran.error());
    return 1;
  }
  if (what.refusal != nullptr) {
    std::fprintf(stderr, "%s\n", what.refusal);
    return 2;
  }
  LaunchOptions options;
  options.ranks = what.ranks;
  options.arguments = std::vector<std::string>(argv + 1, argv + argc);
  auto job = Job::start(options);
  if (!job) return fail_with(job.error());
  const auto outcome = (*job)->wait(Deadline::after(what.longest));
  if (!outcome) return fail_with(outcome.error());
  if (const auto status = outcome->status(); !status) return fail_with(status.error());
  return 0;
}

}  // namespace tandem::bench
