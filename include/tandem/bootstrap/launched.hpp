#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <tandem/base/error.hpp>
#include <tandem/bootstrap/launcher.hpp>
#include <tandem/bootstrap/store.hpp>

namespace tandem {

/// What mpirun, torchrun or srun tells a process that it started, by environment variables.
struct LaunchedRank {
  int rank = 0;          ///< in [0, size)
  int size = 1;          ///< the number of processes of the launch, on all hosts
  int local_rank = 0;    ///< in [0, local_size): the number of the process on its host
  int local_size = 1;    ///< the number of processes of the launch on this host
  std::string launcher;  ///< "Open MPI", "MPICH", "torchrun" or "Slurm"
  /// The same for all processes of the launch and, as far as the launcher has such a name, for no other
  /// launch. Empty if it has none: MPICH.
  std::string job;
};

/// The value of an environment variable; nothing if it is unset or empty.
using GetVariable = std::function<std::optional<std::string>(const std::string& name)>;

/// Returns what a launcher says of this process, and nothing if none started it. A step of Slurm counts, its
/// allocation and its terminal (--pty) alone do not. TANDEM_LAUNCHER = none | openmpi | mpich | torchrun |
/// slurm: the only launcher to ask. TANDEM_JOB replaces `job`. A process that a Job started has the variables
/// of its parent: call join_job() first, and this function only if it returns nothing.
/// Errors:  kInvalidArgument for variables that are missing, are no numbers, are out of range, or contradict
///          each other, with the variable, its value and the remedy.
[[nodiscard]] Result<std::optional<LaunchedRank>> launched_rank();
/// The same from other variables than the environment's.
[[nodiscard]] Result<std::optional<LaunchedRank>> launched_rank(const GetVariable& get);

/// What join_launched() needs to know.
struct JoinOptions {
  /// A store that all processes of the launch share, on all hosts. Null: join_launched() makes one for
  /// processes of one host. Use one store for one call.
  std::shared_ptr<Store> store = {};
  /// The longest wait for the other processes. Config::rendezvous_timeout is meant for it.
  std::chrono::milliseconds timeout{60'000};
  /// Set to true where the error is one that rank 0 has told the others, and reports itself. May be null.
  bool* is_told = nullptr;
};

/// Makes the processes of a launch the ranks of one job. This is a collective call of all of them, and
/// returns when all have come. Without `options.store` rank 0 serves a store. The others find it by a file
/// that only this user can read, in a directory of the job below the temporary directory. Nothing remains of
/// the two once all have come. What a killed process left is removed by the next launch of the same user.
///
/// Rank 0 watches the other processes of its host as a Job's launcher does. So the ranks of a group that is
/// being made hear of one that has ended. It keeps the store for all: the others cannot use theirs after
/// rank 0 has let go of its own.
/// Errors:  kTimeout with the ranks that did not come; kInvalidArgument for a rank that is taken by another
///          launch of the same `job`, and for a file or directory that is not this user's own; kMismatch if
///          the processes differ in the size; kUnsupported for several hosts without a store; kPeerLost.
/// Source:  docs/design/bootstrap.md
[[nodiscard]] Result<RankContext> join_launched(const LaunchedRank& self, const JoinOptions& options = {});

/// Why a rank of a launch has failed: what it told by report_failure(), or kPeerLost if its process has ended
/// and rank 0 has seen it. Nothing as long as it works. It serves rank 0 as Job::wait() serves a launcher.
[[nodiscard]] std::optional<Error> find_failure(const RankContext& self, int rank);

}  // namespace tandem
