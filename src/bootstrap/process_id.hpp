#pragma once

#include <sys/types.h>
#include <cstdint>
#include <optional>
#include <string>

namespace tandem::bootstrap {

/// Names one process for as long as the host runs: a pid alone may be given to another process later.
struct ProcessId {
  std::int32_t pid = 0;
  std::uint64_t start_time = 0;     ///< clock ticks since boot
  std::uint64_t pid_namespace = 0;  ///< pids compare only inside one namespace

  [[nodiscard]] static ProcessId self();
  bool operator==(const ProcessId&) const = default;
};

/// What /proc says about a process.
struct ProcessStat {
  char state = '?';  ///< R, S, D, T (stopped), t (traced), Z (zombie), ...
  std::uint64_t start_time = 0;

  [[nodiscard]] bool is_stopped() const { return state == 'T' || state == 't'; }
  [[nodiscard]] bool is_dead() const { return state == 'Z' || state == 'X'; }
};

/// Nothing if there is no such process.
[[nodiscard]] std::optional<ProcessStat> read_process_stat(pid_t pid);

/// Whether the process is there and not a zombie. Only for a process of the own pid namespace.
[[nodiscard]] bool is_alive(const ProcessId& process);

/// Names this boot of this host: ranks with different texts cannot share memory.
[[nodiscard]] std::string host_identity();

}  // namespace tandem::bootstrap
