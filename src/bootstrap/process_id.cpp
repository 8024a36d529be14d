#include "bootstrap/process_id.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <sstream>

#include "base/format.hpp"

namespace tandem::bootstrap {

std::optional<ProcessStat> read_process_stat(pid_t pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  std::string line;
  if (!std::getline(file, line)) return std::nullopt;
  // The second field is the program's name in parentheses and may hold anything, parentheses included.
  const auto name_end = line.rfind(')');
  if (name_end == std::string::npos) return std::nullopt;
  std::istringstream fields(line.substr(name_end + 1));
  ProcessStat stat;
  fields >> stat.state;
  constexpr int kFieldsBeforeStartTime = 18;  // fields 4 to 21
  std::string skipped;
  for (int i = 0; i < kFieldsBeforeStartTime; ++i) fields >> skipped;
  if (!(fields >> stat.start_time)) return std::nullopt;
  return stat;
}

ProcessId ProcessId::self() {
  ProcessId id;
  id.pid = ::getpid();
  if (const auto stat = read_process_stat(id.pid)) id.start_time = stat->start_time;
  struct stat pid_namespace {};
  if (::stat("/proc/self/ns/pid", &pid_namespace) == 0) id.pid_namespace = pid_namespace.st_ino;
  return id;
}

bool is_alive(const ProcessId& process) {
  const auto stat = read_process_stat(process.pid);
  return stat && stat->start_time == process.start_time && !stat->is_dead();
}

std::string host_identity() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string boot;
  std::getline(file, boot);
  return boot;
}

}  // namespace tandem::bootstrap
