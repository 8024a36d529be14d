#pragma once

#include <chrono>
#include <cstdio>
#include <functional>
#include <memory>
#include <string_view>
#include <tandem/bootstrap/group.hpp>
#include <tandem/bootstrap/launcher.hpp>
#include <tandem/bootstrap/thread_ranks.hpp>

// The main() of the examples. The ranks are threads, or, with --processes, processes of this same program:
// then main() runs in the launcher and once more in every rank.

using RankMain = std::function<tandem::Result<void>(tandem::Group&)>;

/// No exception may leave main(): value() throws where a call has failed.
inline tandem::Result<void> call(const RankMain& rank_main, tandem::Group& group) {
  try {
    return rank_main(group);
  } catch (const tl::bad_expected_access<tandem::Error>& failed) {
    return tl::unexpected<tandem::Error>(failed.error());
  }
}

inline tandem::Result<void> run_as_rank(const tandem::RankContext& context, const RankMain& rank_main) {
  tandem::GroupOptions options;
  options.rank = context.rank;
  options.size = context.size;
  options.store = context.store;
  const auto group = tandem::Group::create(options);
  auto done = group ? call(rank_main, **group) : tandem::Result<void>(tl::unexpected(group.error()));
  if (!done) tandem::report_failure(context, done.error());
  return done;
}

inline tandem::Result<void> launch_processes(int ranks) {
  tandem::LaunchOptions options;
  options.ranks = ranks;
  auto job = tandem::Job::start(options);
  if (!job) return tl::unexpected(job.error());
  const auto outcome = (*job)->wait(tandem::Deadline::after(std::chrono::seconds(60)));
  if (!outcome) return tl::unexpected(outcome.error());
  return outcome->status();
}

inline tandem::Result<void> run_example(int argc, char** argv, int ranks, const RankMain& rank_main) {
  const auto context = tandem::join_job(argc, argv);
  if (!context) return tl::unexpected(context.error());
  if (*context) return run_as_rank(**context, rank_main);
  if (argc == 2 && std::string_view(argv[1]) == "--processes") return launch_processes(ranks);
  return tandem::run_thread_ranks(ranks, tandem::Config{}, rank_main);
}

/// Exit code; says on stderr what went wrong.
inline int example_main(int argc, char** argv, int ranks, const RankMain& rank_main) {
  const auto done = run_example(argc, argv, ranks, rank_main);
  if (!done) std::fprintf(stderr, "%s\n", done.error().to_string().c_str());
  return done ? 0 : 1;
}
