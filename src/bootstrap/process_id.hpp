#pragma once

#include <sys/types.h>
#include <cstdint>
#include <optional>
#include <string>

namespace tandem::bootstrap {

/// Names one process for as long as the host runs: a pid alone may be given to another process later. What
/// /proc does not tell is 0.
struct ProcessId {
  std::int32_t pid = 0;
  std::uint64_t start_time = 0;      ///< clock ticks since boot, by the clock of the time namespace
  std::uint64_t pid_namespace = 0;   ///< pids compare only inside one namespace
  std::uint64_t time_namespace = 0;  ///< start times compare only inside one namespace

  [[nodiscard]] static ProcessId self();
  /// Whether a pid of `other` names the same process in its namespace and in this one's.
  [[nodiscard]] bool shares_pids_with(const ProcessId& other) const {
    return pid_namespace != 0 && pid_namespace == other.pid_namespace;
  }
  bool operator==(const ProcessId&) const = default;
};

/// What /proc says about a process.
struct ProcessStat {
  char state = '?';  ///< R, S, D, T (stopped), t (traced), Z (zombie), ...
  int num_threads = 0;
  std::uint64_t start_time = 0;

  [[nodiscard]] bool is_stopped() const { return state == 'T' || state == 't'; }
  /// A zombie with threads lives: its first thread has ended before the others.
  [[nodiscard]] bool is_dead() const { return (state == 'Z' && num_threads <= 1) || state == 'X'; }
};

/// Reads a line of /proc/<pid>/stat. Nothing if it is malformed.
[[nodiscard]] std::optional<ProcessStat> parse_process_stat(const std::string& line);

// Processes of the own pid namespace. `proc` is where its /proc is mounted. A sandbox may have none, that of
// another namespace, or one that hides other processes, so what cannot be read is not gone.

/// What /proc says about exactly this process. Nothing if that cannot be read, or the pid is another's.
[[nodiscard]] std::optional<ProcessStat> stat_of(const ProcessId& process, const std::string& proc = "/proc");

enum class Life { kAlive, kGone, kUnknown };
/// kGone only if there is proof: no process or another one has the pid, or it is a zombie.
[[nodiscard]] Life look_at(const ProcessId& process, const std::string& proc = "/proc");

/// Names this boot of this host: ranks with different texts cannot share memory.
[[nodiscard]] std::string host_identity();

}  // namespace tandem::bootstrap
