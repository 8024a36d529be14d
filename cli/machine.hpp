#pragma once

#include <cstdint>
#include <string>

namespace tandem::cli {

/// What this host offers, as far as the number of ranks and the headings of reports need it.
struct Machine {
  std::string cpu_model;
  int online_cores = 1;
  int affinity_cores = 1;         ///< cores this process may be scheduled on
  double cgroup_cores = 0;        ///< the control group's processor limit, 0 for none
  std::int64_t memory_bytes = 0;  ///< what the host has, or less by the control group's limit
  std::string kernel_release;
  bool has_gpu_driver = false;

  /// Cores that ranks can really use at once; at least 1.
  [[nodiscard]] int usable_cores() const;
};

[[nodiscard]] Machine probe_machine();

/// "cpu (no GPU driver found)".
[[nodiscard]] std::string backend_and_why(const Machine& machine, const std::string& asked);
/// "4 ranks (2 cores: ranks share them)".
[[nodiscard]] std::string ranks_and_why(const Machine& machine, int ranks);
/// A number of ranks that shows overlap on this machine: one a core, within [4, 8].
[[nodiscard]] int default_ranks(const Machine& machine);

}  // namespace tandem::cli
