// The launcher may die between its fork and the moment at which its child asks to die with it.
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdarg>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "support/process_ranks.hpp"

namespace {
/// Children of this process stop before they ask to die with it.
bool stops_before_request = false;
}  // namespace

/// Stands before the C library's in this program.
extern "C" int prctl(int option, ...) {
  if (stops_before_request && option == PR_SET_PDEATHSIG) ::raise(SIGSTOP);
  std::va_list list;
  va_start(list, option);
  unsigned long arguments[4];
  for (unsigned long& argument : arguments) argument = va_arg(list, unsigned long);
  va_end(list);
  return static_cast<int>(
      ::syscall(SYS_prctl, option, arguments[0], arguments[1], arguments[2], arguments[3]));
}

namespace tandem {
namespace {

using testing::RankFunction;
using testing::RankProcess;

const RankFunction kLauncher("launcher_of_a_late_child", [](RankProcess& self) -> Result<void> {
  stops_before_request = true;
  self.publish("begins", "");
  const auto job = Job::start({.ranks = 1, .arguments = {"60"}, .program = "/bin/sleep"});
  return fail(ErrorCode::kInternal, job ? "the child did not stop" : job.error().to_string());
});

/// A stopped child of any thread of a process; -1 if none comes in 10 s.
pid_t find_stopped_child(pid_t parent) {
  for (int i = 0; i < 1000; ++i) {
    for (const auto& task :
         std::filesystem::directory_iterator("/proc/" + std::to_string(parent) + "/task")) {
      std::ifstream children(task.path() / "children");
      for (pid_t child = 0; children >> child;) {
        std::ifstream file("/proc/" + std::to_string(child) + "/stat");
        std::string line;
        if (std::getline(file, line) && line.at(line.rfind(')') + 2) == 'T') return child;
      }
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return -1;
}

/// How a child of this process ended within 10 s; -1 if it did not.
int status_of(pid_t child) {
  int status = -1;
  for (int i = 0; i < 1000; ++i) {
    if (::waitpid(child, &status, WNOHANG) == child) return status;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return -1;
}

TEST(Orphan, AChildThatIsBornAfterItsLauncherHasDiedStartsNothing) {
  ASSERT_EQ(::syscall(SYS_prctl, PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), 0);
  auto launcher = testing::start_process_ranks(1, "launcher_of_a_late_child");
  ASSERT_TRUE(launcher.published(0, "begins"));
  const pid_t child = find_stopped_child(launcher.pid(0));
  ASSERT_GT(child, 0);
  launcher.kill(0);
  static_cast<void>(launcher.wait());
  ::kill(child, SIGCONT);
  const int status = status_of(child);
  if (status == -1) ::kill(child, SIGKILL);
  ::syscall(SYS_prctl, PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0);
  ASSERT_NE(status, -1) << "it runs its program";
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 127) << status;
}

}  // namespace
}  // namespace tandem
