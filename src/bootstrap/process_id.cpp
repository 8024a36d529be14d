#include "bootstrap/process_id.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <fstream>
#include <sstream>

#include "base/format.hpp"

namespace tandem::bootstrap {
namespace {

std::string first_line_of(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::uint64_t namespace_of_self(const char* kind) {
  struct stat status {};
  return ::stat(fmt::format("/proc/self/ns/{}", kind).c_str(), &status) == 0 ? status.st_ino : 0;
}

/// Whether `proc` counts pids as this process's namespace does. The /proc of an outer namespace lists this
/// process with a number for each namespace down to its own.
bool shows_own_pids(const std::string& proc) {
  std::ifstream file(proc + "/self/status");
  bool is_own = false;
  for (std::string line; std::getline(file, line);) {
    std::istringstream fields(line);
    std::string name;
    int number = 0;
    fields >> name >> number;
    if (name == "Pid:") is_own = number == ::getpid();
    if (name == "NSpid:") return is_own && !(fields >> number);
  }
  return is_own;
}

/// Start times are proof where both processes' clocks count from one moment.
bool has_other_start(const ProcessId& process, const ProcessStat& stat) {
  return process.start_time != 0 && process.time_namespace == namespace_of_self("time") &&
         stat.start_time != process.start_time;
}

std::optional<ProcessStat> stat_of_pid(pid_t pid, const std::string& proc) {
  if (!shows_own_pids(proc)) return std::nullopt;
  return parse_process_stat(first_line_of(fmt::format("{}/{}/stat", proc, pid)));
}

}  // namespace

std::optional<ProcessStat> parse_process_stat(const std::string& line) {
  // The second field is the program's name in parentheses and may hold anything, parentheses included.
  const auto name_end = line.rfind(')');
  if (name_end == std::string::npos) return std::nullopt;
  std::istringstream fields(line.substr(name_end + 1));
  std::string skipped;
  const auto skip = [&](int count) {
    for (int i = 0; i < count; ++i) fields >> skipped;
  };
  ProcessStat stat;
  fields >> stat.state;
  skip(16);  // fields 4 to 19
  fields >> stat.num_threads;
  skip(1);
  if (!(fields >> stat.start_time)) return std::nullopt;
  return stat;
}

ProcessId ProcessId::self() {
  ProcessId id;
  id.pid = ::getpid();
  // By its link: the number may be another process's where /proc is of another namespace.
  if (const auto stat = parse_process_stat(first_line_of("/proc/self/stat")))
    id.start_time = stat->start_time;
  id.pid_namespace = namespace_of_self("pid");
  id.time_namespace = namespace_of_self("time");
  return id;
}

std::optional<ProcessStat> stat_of(const ProcessId& process, const std::string& proc) {
  const auto stat = stat_of_pid(process.pid, proc);
  return stat && !has_other_start(process, *stat) ? stat : std::nullopt;
}

Life look_at(const ProcessId& process, const std::string& proc) {
  if (process.pid <= 0) return Life::kUnknown;
  if (const auto stat = stat_of_pid(process.pid, proc)) {
    return stat->is_dead() || has_other_start(process, *stat) ? Life::kGone : Life::kAlive;
  }
  // Whoever may not see a process still learns that no process has its number.
  return ::kill(process.pid, 0) != 0 && errno == ESRCH ? Life::kGone : Life::kUnknown;
}

std::string host_identity() {
  return first_line_of("/proc/sys/kernel/random/boot_id");
}

}  // namespace tandem::bootstrap
