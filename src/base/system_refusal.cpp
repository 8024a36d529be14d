#include "base/system_refusal.hpp"

#include <sys/resource.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "base/format.hpp"

namespace tandem {
namespace {

/// ", now 1024" behind the name of a limit; nothing if there is no such limit.
template <class Resource>
std::string now(Resource resource) {
  rlimit limit{};
  if (::getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return "";
  return fmt::format(", now {}", limit.rlim_cur);
}

std::string address_space() {
  return fmt::format("the address space (ulimit -v{})", now(RLIMIT_AS));
}

/// What the user can change; empty where nothing is known to help.
std::string remedy_for(int code) {
  switch (code) {
    case EAGAIN:  // of a thread or a process; a thread without room for its stack gets it too
      return fmt::format("; raise the limit of processes (ulimit -u{}), pids.max of the control group, or {}",
                         now(RLIMIT_NPROC), address_space());
    case EMFILE:
      return fmt::format("; raise the limit of open files (ulimit -n{})", now(RLIMIT_NOFILE));
    case ENFILE:
      return "; raise the system's limit of open files (sysctl fs.file-max)";
    case ENOMEM:
      return fmt::format("; raise the memory limit of the control group, or {}", address_space());
    case EPERM:
    case EACCES:
    case ENOSYS:
      return "; allow this system call in the container's seccomp profile";
    default:
      return "";
  }
}

}  // namespace

Error system_refusal(std::string_view what, int code) {
  return Error(code == ENOMEM ? ErrorCode::kOutOfMemory : ErrorCode::kDriver,
               fmt::format("{}: {}{}", what, std::strerror(code), remedy_for(code)), code);
}

}  // namespace tandem
