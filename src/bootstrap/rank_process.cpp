#include "bootstrap/rank_process.hpp"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/format.hpp"
#include "base/system_refusal.hpp"
#include "base/transfer.hpp"
#include "base/uninterrupted.hpp"

namespace tandem::bootstrap {
namespace {

/// What the child could not do before it ran its program.
struct ChildFailure {
  bool is_of_connection;  ///< else of the program
  int error;              ///< errno; 0 once the child runs its program
};

/// In the child of a process with threads: nothing that could take a lock. Returns only by _exit.
[[noreturn]] void become(const RankProgram& program, char* const* arguments, pid_t parent, int failure_pipe) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  ChildFailure failure{false, ESRCH};
  if (::getppid() == parent) {  // otherwise it died before the line above could help
    failure.is_of_connection = ::fcntl(program.connection, F_SETFD, 0) != 0;
    if (!failure.is_of_connection) {
      ::sigprocmask(SIG_SETMASK, &program.signal_mask, nullptr);
      ::execv(program.program.c_str(), arguments);
    }
    failure.error = errno;
  }
  [[maybe_unused]] const bool is_told = transfer_all(sizeof(failure), [&](std::size_t done) {
    return ::write(failure_pipe, reinterpret_cast<const std::byte*>(&failure) + done, sizeof(failure) - done);
  });
  ::_exit(127);
}

/// Returns once the child runs its program, which closes the pipe, or has failed.
ChildFailure read_failure(int pipe) {
  ChildFailure failure{};
  const bool has_failed = transfer_all(sizeof(failure), [&](std::size_t done) {
    return ::read(pipe, reinterpret_cast<std::byte*>(&failure) + done, sizeof(failure) - done);
  });
  return has_failed ? failure : ChildFailure{};
}

Error cannot_run(const std::string& program, const ChildFailure& failure) {
  const int error = failure.error;
  if (failure.is_of_connection) return system_refusal("job: cannot leave a rank its connection", error);
  const std::string what = fmt::format("job: cannot run '{}'", program);
  if (error == EAGAIN || error == ENOMEM) return system_refusal(what, error);
  const bool needs_proc = error == ENOENT && program.starts_with("/proc/");
  return Error(ErrorCode::kDriver,
               fmt::format("{}: {}{}", what, std::strerror(error),
                           needs_proc ? "; mount /proc, or name the program by its path" : ""),
               error);
}

}  // namespace

Result<pid_t> start_process(const RankProgram& program) {
  std::vector<char*> arguments;
  for (const std::string& argument : program.arguments)
    arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return tl::unexpected(system_refusal("job: no pipe", errno));
  const UniqueFd read_end(ends[0]);
  UniqueFd write_end(ends[1]);
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child == 0) become(program, arguments.data(), parent, write_end.get());
  if (child < 0) return tl::unexpected(system_refusal("job: no process for a rank", errno));
  write_end.reset();
  if (const ChildFailure failure = read_failure(read_end.get()); failure.error != 0) {
    uninterrupted([&] { return ::waitpid(child, nullptr, 0); });
    return tl::unexpected(cannot_run(program.program, failure));
  }
  return child;
}

}  // namespace tandem::bootstrap
