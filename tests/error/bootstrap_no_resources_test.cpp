// No thread, process or file descriptor can be made: an Error, and nothing that had begun is left.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/types.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <tandem/backend/backend.hpp>
#include <tandem/bootstrap/thread_ranks.hpp>
#include <tandem/device/device.hpp>

#include "support/file_limit.hpp"
#include "support/leak_oracle.hpp"
#include "support/process_ranks.hpp"

namespace {

/// How many more calls of a function succeed; negative: all.
std::atomic<int> threads_left{-1};
std::atomic<int> processes_left{-1};

bool may_go_on(std::atomic<int>& left) {
  return left < 0 || left-- > 0 || (++left, false);
}

}  // namespace

// Stand before the C library's in this program.
extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*body)(void*),
                              void* argument) {
  static const auto real = reinterpret_cast<decltype(&pthread_create)>(::dlsym(RTLD_NEXT, "pthread_create"));
  return may_go_on(threads_left) ? real(thread, attributes, body, argument) : EAGAIN;
}
extern "C" pid_t fork() {
  static const auto real = reinterpret_cast<decltype(&fork)>(::dlsym(RTLD_NEXT, "fork"));
  if (may_go_on(processes_left)) return real();
  errno = EAGAIN;
  return -1;
}

namespace tandem {
namespace {

using testing::describe;
using testing::FileLimit;
using testing::LeakOracle;
using testing::RankFunction;
using testing::RankProcess;

/// Only so many more can be made while it lives.
class Limit {
 public:
  Limit(std::atomic<int>& left, int more) : left_(left) { left_ = more; }
  ~Limit() { left_ = -1; }
  Limit(const Limit&) = delete;
  Limit& operator=(const Limit&) = delete;

 private:
  std::atomic<int>& left_;
};

bool is_any_blocked() {
  sigset_t mask;
  pthread_sigmask(SIG_SETMASK, nullptr, &mask);
  return sigismember(&mask, SIGINT) == 1 || sigismember(&mask, SIGTERM) == 1 ||
         sigismember(&mask, SIGCHLD) == 1;
}

LaunchOptions three_ranks() {
  return {
      .ranks = 3, .arguments = {}, .program = "/bin/sh", .interpreter_arguments = {"-c", "exec sleep 60"}};
}

void expect_refusal(const Result<std::unique_ptr<Job>>& job, const std::string& begin,
                    const std::string& limit) {
  ASSERT_FALSE(job);
  EXPECT_EQ(job.error().code(), ErrorCode::kDriver);
  EXPECT_EQ(job.error().text().find(begin), 0U) << job.error().text();
  EXPECT_NE(job.error().text().find(limit), std::string::npos) << job.error().text();
}

TEST(NoResources, AJobWithoutAThreadOfItsOwn) {
  const LeakOracle oracle;
  {
    const Limit one(threads_left, 1);  // that of its store
    expect_refusal(Job::start(three_ranks()), "job: no thread: ", "ulimit -u");
    EXPECT_FALSE(is_any_blocked());
  }
  EXPECT_EQ(oracle.leaks(), "");
  EXPECT_TRUE(Job::start(three_ranks()));
}

TEST(NoResources, AJobWithoutAProcessForEveryRank) {
  for (const int num_processes : {0, 1, 2}) {
    const LeakOracle oracle;
    {
      const Limit few(processes_left, num_processes);
      expect_refusal(Job::start(three_ranks()), "job: no process for a rank: ", "ulimit -u");
      EXPECT_FALSE(is_any_blocked());
    }
    EXPECT_EQ(oracle.leaks(), "") << num_processes;
  }
}

TEST(NoResources, AJobWithEveryNumberOfFileDescriptors) {
  bool has_started = false;
  int num_of_job = 0;
  for (int num_files = 0; num_files < 64 && !has_started; ++num_files) {
    const LeakOracle oracle;
    {
      const FileLimit few(num_files);
      const auto job = Job::start(three_ranks());
      has_started = job.has_value();
      EXPECT_FALSE(is_any_blocked());
      if (has_started) break;
      EXPECT_EQ(job.error().code(), ErrorCode::kDriver) << job.error().to_string();
      EXPECT_NE(job.error().text().find("Too many open files"), std::string::npos) << job.error().text();
      const bool is_of_job = job.error().text().find("job: ") == 0;
      num_of_job += is_of_job ? 1 : 0;
      if (is_of_job) {
        EXPECT_NE(job.error().text().find("ulimit -n"), std::string::npos) << job.error().text();
      }
    }
    EXPECT_EQ(oracle.leaks(), "") << num_files;
  }
  EXPECT_TRUE(has_started);
  EXPECT_GE(num_of_job, 2) << "its eventfd, and a pipe";
}

TEST(NoResources, ThreadRanksWithoutAThreadForEveryRank) {
  for (const int num_threads : {0, 1, 2}) {
    const LeakOracle oracle;
    const Limit few(threads_left, num_threads);
    std::atomic<int> num_run{0};
    const auto done = run_thread_ranks(3, Config{}, [&](Group&) -> Result<void> {
      ++num_run;
      return {};
    });
    ASSERT_FALSE(done);
    EXPECT_EQ(done.error().code(), ErrorCode::kDriver);
    const std::string begin = "thread ranks: rank " + std::to_string(num_threads) + " of 3: no thread: ";
    EXPECT_EQ(done.error().text().find(begin), 0U) << done.error().text();
    EXPECT_NE(done.error().text().find("ulimit -u"), std::string::npos) << done.error().text();
    EXPECT_EQ(num_run, 0);
    EXPECT_EQ(oracle.leaks(), "") << num_threads;
  }
}

TEST(NoResources, AStreamOfTheCpuWithoutAThread) {
  const auto device = open_device({DeviceKind::kCpu, 0}, Config{});
  ASSERT_TRUE(device);
  const LeakOracle oracle;
  {
    const Limit none(threads_left, 0);
    const auto stream = (*device)->create_stream();
    ASSERT_FALSE(stream);
    EXPECT_EQ(stream.error().code(), ErrorCode::kDriver);
    EXPECT_EQ(stream.error().text().find("create_stream: no thread: "), 0U) << stream.error().text();
    EXPECT_FALSE(is_any_blocked());
  }
  EXPECT_EQ(oracle.leaks(), "");
  EXPECT_TRUE((*device)->create_stream());
}

/// Rank 1 can make no thread.
const RankFunction kNoMonitor("join_without_a_monitor", [](RankProcess& self) -> Result<void> {
  const Limit none(threads_left, self.rank() == 1 ? 0 : -1);
  auto group = self.create_group();
  if (!group) return tl::unexpected(group.error());
  return {};
});

TEST(NoResources, ARankWithoutAMonitorFailsAndTheOthersHearWhy) {
  const JobOutcome outcome = testing::run_process_ranks(3, "join_without_a_monitor");
  const auto text_of = [&](std::size_t rank) {
    const auto& error = outcome.ranks.at(rank).error;
    return error ? error->to_string() : "ok";
  };
  EXPECT_EQ(text_of(1).find("Driver: peer monitor: no thread: "), 0U) << describe(outcome);
  for (const std::size_t r : {0U, 2U}) {
    EXPECT_EQ(text_of(r).find("PeerLost: rank 1 could not join: Driver: peer monitor: no thread: "), 0U)
        << describe(outcome);
  }
}

}  // namespace
}  // namespace tandem
