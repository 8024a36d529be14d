#pragma once

#include <sys/types.h>
#include <memory>
#include <optional>
#include <string>
#include <tandem/base/config.hpp>
#include <tandem/base/deadline.hpp>
#include <tandem/base/error.hpp>
#include <tandem/bootstrap/store.hpp>
#include <vector>

namespace tandem {

struct LaunchOptions {
  int ranks = 1;
  /// Arguments of every rank's process, without the program name.
  std::vector<std::string> arguments;
  /// The program to run; by default the one that is running.
  std::string program = "/proc/self/exe";
  /// After one rank has failed the others get this long to notice and end before they are killed.
  std::chrono::milliseconds grace{2'000};
};

/// How one rank's process ended.
struct RankOutcome {
  int rank = 0;
  int exit_code = 0;           ///< valid if signal == 0
  int signal = 0;              ///< the signal that ended it, or 0
  std::optional<Error> error;  ///< what the rank reported by report_failure()
};

struct JobOutcome {
  std::vector<RankOutcome> ranks;
  /// Rank whose failure came first; -1 if all ended well.
  int first_failed = -1;
  /// Ok, or the first failing rank's error (kPeerLost if it could not report one).
  [[nodiscard]] Result<void> status() const;
};

/// W copies of a program on this host, joined by a store that lives in the launching process. The ranks die
/// with the launcher, and an end of the Job object ends them. No file is created; nothing is left behind.
class Job {
 public:
  /// Errors: kInvalidArgument for ranks < 1, kDriver when a process cannot be started.
  [[nodiscard]] static Result<std::unique_ptr<Job>> start(const LaunchOptions& options);
  ~Job();
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  /// Waits for all ranks; a failed rank ends the job. Past the deadline all are killed: kTimeout.
  [[nodiscard]] Result<JobOutcome> wait(Deadline deadline);
  [[nodiscard]] pid_t pid(int rank) const;
  /// The job's store, as seen from the launcher.
  [[nodiscard]] Store& store() const;

 private:
  class Impl;
  explicit Job(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// What a launched process knows of its job.
struct RankContext {
  int rank = 0;
  int size = 1;
  std::shared_ptr<Store> store;
};

/// In a process started by Job: its context, with the launcher's own leading argument removed from argv.
/// In any other process: nothing. Call it first in main(), before any thread is started.
[[nodiscard]] Result<std::optional<RankContext>> join_job(int& argc, char**& argv);

/// Tells the launcher why this rank is about to end with a non-zero exit code.
void report_failure(const RankContext& context, const Error& error);

}  // namespace tandem
