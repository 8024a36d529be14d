#pragma once

#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <stdexcept>
#include <thread>

#include "bootstrap/process_id.hpp"

namespace tandem::testing {

/// A process that does nothing until it is killed. Ends with the object.
class ChildProcess {
 public:
  enum class Kind { kOneThread, kFirstThreadHasEnded };

  explicit ChildProcess(Kind kind = Kind::kOneThread) {
    int ends[2];
    if (::pipe(ends) != 0) throw std::runtime_error("no pipe");
    pid_ = ::fork();
    if (pid_ < 0) throw std::runtime_error("no process");
    if (pid_ == 0) {
      id_ = bootstrap::ProcessId::self();
      if (::write(ends[1], &id_, sizeof(id_)) != sizeof(id_)) ::_exit(1);
      wait_for_the_end(kind);
    }
    const auto count = ::read(ends[0], &id_, sizeof(id_));
    ::close(ends[0]);
    ::close(ends[1]);
    if (count != sizeof(id_)) throw std::runtime_error("the child says nothing");
  }
  ~ChildProcess() {
    kill();
    reap();
  }
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  [[nodiscard]] const bootstrap::ProcessId& id() const { return id_; }
  /// It is a zombie from here on.
  void kill() const {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    siginfo_t info;
    ::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOWAIT);
  }
  void reap() {
    if (pid_ > 0) ::waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }

 private:
  [[noreturn]] static void wait_for_the_end(Kind kind) {
    const auto wait = [] {
      for (;;) ::pause();
    };
    if (kind == Kind::kFirstThreadHasEnded) {
      std::thread(wait).detach();
      ::syscall(SYS_exit, 0);  // pthread_exit() would unwind the test's frames
    }
    wait();
    ::_exit(0);
  }

  pid_t pid_ = -1;
  bootstrap::ProcessId id_;
};

}  // namespace tandem::testing
