#include "bootstrap/rank_process.hpp"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/format.hpp"

namespace tandem::bootstrap {
namespace {

/// In the child of a process with threads: nothing that could take a lock. Returns only by _exit.
[[noreturn]] void become(const RankProgram& program, char* const* arguments, pid_t parent, int failure_pipe) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() == parent) {  // otherwise it died before the line above could help
    ::fcntl(program.connection, F_SETFD, 0);
    ::sigprocmask(SIG_SETMASK, &program.signal_mask, nullptr);
    ::execv(program.program.c_str(), arguments);
  }
  const int error = errno;
  [[maybe_unused]] const auto written = ::write(failure_pipe, &error, sizeof(error));
  ::_exit(127);
}

/// 0 once the child runs its program (which closes the pipe), else its errno.
int read_failure(int pipe) {
  int error = 0;
  ssize_t count = -1;
  do {
    count = ::read(pipe, &error, sizeof(error));
  } while (count < 0 && errno == EINTR);
  return count == sizeof(error) ? error : 0;
}

}  // namespace

Result<pid_t> start_process(const RankProgram& program) {
  std::vector<char*> arguments;
  for (const std::string& argument : program.arguments)
    arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) {
    return fail(ErrorCode::kDriver, fmt::format("job: pipe2 failed: {}", std::strerror(errno)), errno);
  }
  const UniqueFd read_end(ends[0]);
  UniqueFd write_end(ends[1]);
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child == 0) become(program, arguments.data(), parent, write_end.get());
  if (child < 0)
    return fail(ErrorCode::kDriver, fmt::format("job: fork failed: {}", std::strerror(errno)), errno);
  write_end.reset();
  if (const int error = read_failure(read_end.get()); error != 0) {
    while (::waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
    }
    return fail(ErrorCode::kDriver,
                fmt::format("job: cannot run '{}': {}", program.program, std::strerror(error)), error);
  }
  return child;
}

}  // namespace tandem::bootstrap
