#pragma once

#include <sys/types.h>
#include <csignal>
#include <string>
#include <tandem/base/error.hpp>
#include <tandem/base/unique_fd.hpp>
#include <vector>

namespace tandem::bootstrap {

/// The first argument of a process that a Job starts: the inherited connection, its rank and the job's size.
inline constexpr std::string_view kRankArgument = "--tandem-rank=";

/// What to start as one rank.
struct RankProgram {
  std::string program;
  std::vector<std::string> arguments;  ///< argv, the program's name first
  int connection = -1;                 ///< the one descriptor that the process inherits
  sigset_t signal_mask;                ///< of the thread that asked for the job
};

/// Starts a process that is killed when the *calling thread* ends: call it from a thread that lives as long
/// as the job.
/// Errors: kDriver or kOutOfMemory with the reason, when there is no such program or no process to be had.
[[nodiscard]] Result<pid_t> start_process(const RankProgram& program);

}  // namespace tandem::bootstrap
