#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <tandem/bootstrap/store.hpp>
#include <vector>

namespace tandem::bootstrap {

// What a job's launcher and ranks tell each other through the job's store about beginning and end of the
// ranks' processes. Counters, because a question about one never waits.

/// How a process ended.
struct RankEnd {
  /// The exit code of a process that another one started: only its parent learns it.
  static constexpr int kUnknown = 0xfff0;
  int exit_code = 0;  ///< valid if signal == 0
  int signal = 0;     ///< the signal that ended it, or 0
};
/// "ended with exit code 3", "was ended by signal 9 (Killed)", "has ended".
[[nodiscard]] std::string describe(const RankEnd& end);

/// The launcher, before the ranks start.
[[nodiscard]] Result<void> write_job_size(Store& store, int size);
/// Rank 0 of a launch by another program: nobody but the ranks themselves writes their ends.
[[nodiscard]] Result<void> write_launch(Store& store);
[[nodiscard]] bool is_launch(Store& store);
/// A rank, as soon as it knows that it is one.
[[nodiscard]] Result<void> write_joined(Store& store, int rank);
[[nodiscard]] bool has_joined(Store& store, int rank);
/// The launcher, when it has seen the end. Only the first end of a rank counts.
[[nodiscard]] Result<void> write_end(Store& store, int rank, const RankEnd& end);
[[nodiscard]] std::optional<RankEnd> read_end(Store& store, int rank);

/// Whether the store is that of a job of `size` ranks.
[[nodiscard]] bool is_job_of(Store& store, int size);
/// The ranks of a job, but `self`, whose processes have ended.
[[nodiscard]] std::vector<int> find_ended(Store& store, int size, int self);

}  // namespace tandem::bootstrap
