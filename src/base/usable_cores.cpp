#include "base/usable_cores.hpp"

#include <sched.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <string>
#include <thread>

namespace tandem {
namespace {

int cores_by_affinity() {
  const int allowed = own_cores().count();
  return allowed > 0 ? allowed : static_cast<int>(std::thread::hardware_concurrency());
}

/// "50000 100000" is half a core, "max 100000" no limit.
double cores_granted(const std::string& cpu_max_file) {
  std::ifstream file(cpu_max_file);
  std::string quota;
  double period_us = 0;
  if (!(file >> quota >> period_us) || quota == "max" || !(period_us > 0)) {
    return std::numeric_limits<double>::infinity();
  }
  return std::strtod(quota.c_str(), nullptr) / period_us;
}

/// The least of the limits on the way from this process's group up to the root.
double cores_by_cgroup() {
  std::ifstream file("/proc/self/cgroup");
  std::string path;
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("0::", 0) == 0) path = line.substr(3);
  }
  double cores = std::numeric_limits<double>::infinity();
  for (;;) {
    cores = std::min(cores, cores_granted("/sys/fs/cgroup" + path + "/cpu.max"));
    const auto slash = path.rfind('/');
    if (slash == std::string::npos) return cores;
    path.resize(slash);
  }
}

}  // namespace

int CoreSet::count() const {
  int count = 0;
  for (const std::uint64_t word : words) count += std::popcount(word);
  return count;
}

CoreSet own_cores() {
  CoreSet set;
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  static_assert(sizeof(allowed) == sizeof(set.words));
  if (sched_getaffinity(0, sizeof(allowed), &allowed) == 0)
    std::memcpy(set.words.data(), &allowed, sizeof(allowed));
  return set;
}

int granted_cores() {
  constexpr double kMost = std::numeric_limits<int>::max();
  return static_cast<int>(std::min(std::ceil(cores_by_cgroup()), kMost));
}

int usable_cores() {
  return std::max(1, std::min(cores_by_affinity(), granted_cores()));
}

}  // namespace tandem
