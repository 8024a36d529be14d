#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>

#include "base/make_thread.hpp"
#include "support/no_threads.hpp"
#include "support/refused_calls.hpp"

namespace tandem {
namespace {

bool is_blocked(int signal) {
  sigset_t mask;
  pthread_sigmask(SIG_SETMASK, nullptr, &mask);
  return sigismember(&mask, signal) == 1;
}

TEST(MakeThread, RunsWithoutSignalsAndTheCallersMaskStays) {
  bool blocked_there = false;
  auto made = make_thread("test", [&] { blocked_there = is_blocked(SIGINT) && is_blocked(SIGCHLD); });
  EXPECT_FALSE(is_blocked(SIGINT));
  ASSERT_TRUE(made) << made.error().to_string();
  made->join();
  EXPECT_TRUE(blocked_there);
}

TEST(MakeThread, ACallersThreadHasTheCallersMask) {
  bool blocked_there = true;
  auto made = make_caller_thread("test", [&] { blocked_there = is_blocked(SIGINT); });
  ASSERT_TRUE(made) << made.error().to_string();
  made->join();
  EXPECT_FALSE(blocked_there);
}

TEST(MakeThread, SaysWhatCouldNotBeMadeAndWhichLimitToRaise) {
  const testing::NoThreads none;
  for (const bool is_callers : {false, true}) {
    const auto made =
        is_callers ? make_caller_thread("peer monitor", [] {}) : make_thread("peer monitor", [] {});
    ASSERT_FALSE(made);
    EXPECT_EQ(made.error().code(), ErrorCode::kDriver);
    EXPECT_EQ(made.error().native_code(), EAGAIN);
    const std::string& text = made.error().text();
    EXPECT_EQ(text.find("peer monitor: no thread: "), 0U) << text;
    for (const char* part : {"ulimit -u", "pids.max", "ulimit -v"})
      EXPECT_NE(text.find(part), std::string::npos) << text;
    EXPECT_FALSE(is_blocked(SIGINT));
  }
}

TEST(MakeThread, SaysThatProcessesWouldBeInAnotherPidNamespace) {
  testing::in_sandbox([] {
    if (!testing::refuse_calls(std::vector<long>{SYS_clone, SYS_clone3}, EINVAL)) return;
    const auto made = make_thread("job", [] {});
    ASSERT_FALSE(made);
    EXPECT_NE(made.error().text().find("pid namespace (unshare needs --fork)"), std::string::npos)
        << made.error().text();
  });
}

TEST(SystemRefusal, NamesTheLimitOfEachError) {
  const std::pair<int, const char*> limits[] = {{EMFILE, "ulimit -n"}, {ENFILE, "fs.file-max"},
                                                {ENOMEM, "ulimit -v"}, {EPERM, "seccomp"},
                                                {EACCES, "seccomp"},   {ENOSYS, "seccomp"}};
  for (const auto& [code, limit] : limits) {
    const Error error = system_refusal("thing", code);
    EXPECT_EQ(error.code(), code == ENOMEM ? ErrorCode::kOutOfMemory : ErrorCode::kDriver);
    EXPECT_EQ(error.native_code(), code);
    EXPECT_EQ(error.text().find("thing: "), 0U) << error.text();
    EXPECT_NE(error.text().find(limit), std::string::npos) << error.text();
  }
  EXPECT_EQ(system_refusal("thing", EBADF).text(), "thing: Bad file descriptor");
}

}  // namespace
}  // namespace tandem
