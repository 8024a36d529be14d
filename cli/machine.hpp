#pragma once

#include <cstdint>
#include <string>
#include <vector>

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
  int launched_ranks = 0;         ///< processes that another program started as ranks; 0: none did
  int launched_here = 0;          ///< those of them that are on this host
  std::string launcher;           ///< that program, or empty
  std::vector<std::string> gpus;  ///< names of those that can be opened, by index

  std::string why_no_gpu = "no GPU driver found";  ///< where `gpus` is empty
  /// Cores that ranks can really use at once; at least 1.
  [[nodiscard]] int usable_cores() const;
  /// Those of a job's `ranks` that are on this host: all, unless a launcher has started some on others.
  [[nodiscard]] int ranks_here(int ranks) const { return launched_ranks > 0 ? launched_here : ranks; }
};

[[nodiscard]] Machine probe_machine();

/// What nvidia-smi says of each GPU now: clocks, power, temperature. Empty where it is not there.
[[nodiscard]] std::vector<std::string> gpu_states();

/// Throws exit 2 if another program has started another number of ranks than `flag` asks for.
void check_launched(const Machine& machine, int ranks, const std::string& flag);

/// "4 ranks of Open MPI on 2 hosts".
[[nodiscard]] std::string ranks_in_words(const Machine& machine, int ranks);
/// "4 ranks (2 cores: ranks share them)".
[[nodiscard]] std::string ranks_and_why(const Machine& machine, int ranks);
/// A number of ranks that shows overlap on this machine: one a GPU where there are several; else one a core,
/// within [4, 8], or 4 on one GPU.
[[nodiscard]] int default_ranks(const Machine& machine, bool on_gpus);

}  // namespace tandem::cli
