#pragma once

#include <sys/types.h>
#include <memory>
#include <optional>
#include <string>
#include <tandem/base/config.hpp>
#include <tandem/base/deadline.hpp>
#include <tandem/base/error.hpp>
#include <tandem/bootstrap/store.hpp>
#include <tandem/bootstrap/transport.hpp>
#include <vector>

namespace tandem {

/// What Job::start() needs to know.
struct LaunchOptions {
  int ranks = 1;
  /// The arguments of each rank's process, without the program name.
  std::vector<std::string> arguments;
  /// The program to run. The default is the program that is running.
  std::string program = "/proc/self/exe";
  /// Arguments before the launcher's own, for a program that is an interpreter: its options and the script.
  /// The script then has the launcher's argument as its first, where join_job() looks for it.
  std::vector<std::string> interpreter_arguments = {};
  /// The time that the other ranks have to end after one has failed. They are killed then.
  std::chrono::milliseconds grace{2'000};
};

/// How one rank's process ended.
struct RankOutcome {
  int rank = 0;
  int exit_code = 0;           ///< valid if signal == 0
  int signal = 0;              ///< the signal that ended it, or 0
  bool has_joined = false;     ///< whether it called join_job()
  std::optional<Error> error;  ///< what the rank reported by report_failure()
};

/// How a job ended.
struct JobOutcome {
  std::vector<RankOutcome> ranks;
  /// The rank that failed first; -1 if all ended well.
  int first_failed = -1;
  /// Returns ok, or the error of the rank that failed first. It is kPeerLost if that rank reported none.
  [[nodiscard]] Result<void> status() const;
};

/// W copies of a program on this host, and a store for them in the launching process. The ranks end with the
/// launcher, and with the Job object. No file is created, and nothing is left behind.
class Job {
 public:
  /// Starts the ranks.
  /// Errors:  kInvalidArgument for ranks < 1; kDriver or kOutOfMemory if a process, a thread or a file
  ///          descriptor cannot be made, with the limit to raise.
  [[nodiscard]] static Result<std::unique_ptr<Job>> start(const LaunchOptions& options);
  ~Job();
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  /// Waits for all ranks. A failed rank ends the job. A rank fails by its exit code, by a signal, or by
  /// ending before it has called join_job().
  /// Errors:  kTimeout after the deadline; all ranks are killed then.
  [[nodiscard]] Result<JobOutcome> wait(Deadline deadline);
  [[nodiscard]] pid_t pid(int rank) const;
  /// The job's store, for use in the launcher.
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
  int local_rank = 0;  ///< the number of this rank among those of its host: it gets the GPU of this number
  std::shared_ptr<Transport> transport = {};  ///< for a group of all ranks, where they are on several hosts
};

/// Returns the context of a process that a Job started, and nothing in any other process. It removes the
/// launcher's own argument from argv. Call it first in main(), before any thread is started.
[[nodiscard]] Result<std::optional<RankContext>> join_job(int& argc, char**& argv);

/// Tells the launcher why this rank is going to end with an exit code other than 0. In a launch of mpirun,
/// torchrun or srun it tells rank 0, and groups that are being made do not wait for this rank.
void report_failure(const RankContext& context, const Error& error);

}  // namespace tandem
