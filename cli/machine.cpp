#include "machine.hpp"

#include <fmt/format.h>
#include <sched.h>
#include <sys/sysinfo.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "failure.hpp"

namespace tandem::cli {
namespace {

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::string cpu_model() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("model name", 0) != 0) continue;
    const std::size_t colon = line.find(':');
    if (colon != std::string::npos && colon + 2 <= line.size()) return line.substr(colon + 2);
  }
  return "unknown CPU";
}

// "200000 100000" means two cores; "max 100000" no limit.
double cgroup_cores() {
  std::istringstream line(first_line("/sys/fs/cgroup/cpu.max"));
  std::string quota;
  double period = 0;
  line >> quota >> period;
  if (quota.empty() || quota == "max" || period <= 0) return 0;
  return std::strtod(quota.c_str(), nullptr) / period;
}

std::int64_t memory_bytes() {
  struct sysinfo info {};
  sysinfo(&info);
  auto bytes = static_cast<std::int64_t>(info.totalram) * static_cast<std::int64_t>(info.mem_unit);
  const std::string limit = first_line("/sys/fs/cgroup/memory.max");
  if (!limit.empty() && limit != "max")
    bytes = std::min<std::int64_t>(bytes, std::strtoll(limit.c_str(), nullptr, 10));
  return bytes;
}

}  // namespace

int Machine::usable_cores() const {
  int cores = affinity_cores;
  if (cgroup_cores > 0) cores = std::min(cores, static_cast<int>(std::ceil(cgroup_cores)));
  return std::max(1, cores);
}

Machine probe_machine() {
  Machine machine;
  machine.cpu_model = cpu_model();
  machine.online_cores = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  cpu_set_t set;
  CPU_ZERO(&set);
  machine.affinity_cores =
      sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : machine.online_cores;
  machine.cgroup_cores = cgroup_cores();
  machine.memory_bytes = memory_bytes();
  utsname names{};
  uname(&names);
  machine.kernel_release = names.release;
  machine.has_gpu_driver = std::filesystem::exists("/proc/driver/nvidia/version");
  return machine;
}

std::vector<std::string> gpu_states() {
  constexpr const char* kCommand =
      "nvidia-smi --query-gpu=clocks.sm,clocks.mem,power.draw,temperature.gpu,pstate --format=csv,noheader "
      "2>/dev/null";
  std::vector<std::string> states;
  std::FILE* pipe = ::popen(kCommand, "r");
  if (pipe == nullptr) return states;
  char line[256];
  while (std::fgets(line, sizeof(line), pipe) != nullptr) {
    std::string state(line);
    while (!state.empty() && state.back() == '\n') state.pop_back();
    states.push_back(std::move(state));
  }
  ::pclose(pipe);
  return states;
}

void check_launched(const Machine& machine, int ranks, const std::string& flag) {
  if (machine.launched_ranks == 0 || ranks == machine.launched_ranks) return;
  bad_input(fmt::format(
      "{} {}: {} has started {} rank{}, each of which is one of the job; leave out the number, start {}, or "
      "set "
      "TANDEM_LAUNCHER=none",
      flag, ranks, machine.launcher, machine.launched_ranks, machine.launched_ranks == 1 ? "" : "s", ranks));
}

std::string ranks_in_words(const Machine& machine, int ranks) {
  const int num_hosts = ranks / machine.ranks_here(ranks);
  return fmt::format("{} rank{}{}{}", ranks, ranks == 1 ? "" : "s",
                     machine.launcher.empty() ? "" : " of " + machine.launcher,
                     num_hosts == 1 ? "" : fmt::format(" on {} hosts", num_hosts));
}

std::string ranks_and_why(const Machine& machine, int ranks) {
  const int cores = machine.usable_cores();
  const int ranks_here = machine.ranks_here(ranks);
  const char* const where = ranks_here < ranks ? " here" : "";
  const std::string noun = ranks_in_words(machine, ranks);
  if (ranks_here <= cores) return fmt::format("{} ({} cores{}: one each)", noun, cores, where);
  return fmt::format("{} ({} core{}{}: ranks share {})", noun, cores, cores == 1 ? "" : "s", where,
                     cores == 1 ? "it" : "them");
}

int default_ranks(const Machine& machine, bool on_gpus) {
  const auto num_gpus = static_cast<int>(machine.gpus.size());
  if (on_gpus && num_gpus > 0) return num_gpus > 1 ? num_gpus : 4;
  return std::clamp(machine.usable_cores(), 4, 8);
}

}  // namespace tandem::cli
