#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <string_view>
#include <tandem/base/fault.hpp>
#include <thread>
#include <vector>

namespace tandem {
namespace {

FaultPlan plan_of(std::string_view text) {
  auto plan = FaultPlan::parse(text);
  EXPECT_TRUE(plan.has_value()) << plan.error().to_string();
  return plan.value_or(FaultPlan());
}

TEST(FaultPlan, EmptyDoesNothing) {
  EXPECT_EQ(FaultPlan().hit("put", 0), FaultAction::kNone);
  EXPECT_EQ(plan_of("").hit("put", 0), FaultAction::kNone);
}

TEST(FaultPlan, HitsTheNthTimeOfItsPointAndRank) {
  const FaultPlan plan = plan_of("put:1:3:corrupt");
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(plan.hit("put", 0), FaultAction::kNone) << "another rank, time " << i;
    EXPECT_EQ(plan.hit("get", 1), FaultAction::kNone) << "another point, time " << i;
  }
  for (int time = 1; time <= 5; ++time) {
    EXPECT_EQ(plan.hit("put", 1), time == 3 ? FaultAction::kCorrupt : FaultAction::kNone) << "time " << time;
  }
}

TEST(FaultPlan, StarsMatchAnyRankAndEveryTime) {
  const FaultPlan every = plan_of("get:*:*:corrupt");
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(every.hit("get", rank), FaultAction::kCorrupt) << rank;
  const FaultPlan second = plan_of("get:*:2:corrupt");
  EXPECT_EQ(second.hit("get", 5), FaultAction::kNone);
  EXPECT_EQ(second.hit("get", 0), FaultAction::kCorrupt) << "times are counted over all ranks of a `*`";
  EXPECT_EQ(second.hit("get", 0), FaultAction::kNone);
}

TEST(FaultPlan, SeveralRulesAndCopiesCountTogether) {
  const FaultPlan plan = plan_of("put:0:1:delay:1,get:0:1:corrupt,put:0:2:corrupt,put:0:2:delay:1");
  const FaultPlan copy = plan;
  EXPECT_EQ(plan.hit("put", 0), FaultAction::kDelay);
  EXPECT_EQ(copy.hit("get", 0), FaultAction::kCorrupt);
  EXPECT_EQ(copy.hit("put", 0), FaultAction::kCorrupt)
      << "a delay beside it must not hide it from the caller";
  EXPECT_EQ(plan.hit("put", 0), FaultAction::kNone);
}

TEST(FaultPlan, DelaysForItsTime) {
  const FaultPlan plan = plan_of("wait:2:1:delay:30");
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(plan.hit("wait", 2), FaultAction::kDelay);
  EXPECT_GE(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(30));
}

TEST(FaultPlan, ThreadsShareOneCount) {
  constexpr int kThreads = 4;
  constexpr int kTimes = 5000;
  const FaultPlan plan = plan_of("get:*:10000:corrupt");
  std::vector<int> found(kThreads);
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        for (int i = 0; i < kTimes; ++i)
          found[static_cast<std::size_t>(t)] += plan.hit("get", t) == FaultAction::kCorrupt;
      });
    }
  }
  EXPECT_EQ(found[0] + found[1] + found[2] + found[3], 1);
}

// The status with which a child that hits `plan` stops or ends.
int status_after_hit(const FaultPlan& plan) {
  const pid_t child = ::fork();
  if (child == 0) {
    plan.hit("put", 0);
    ::_exit(7);
  }
  int status = -1;
  EXPECT_EQ(::waitpid(child, &status, WUNTRACED), child);
  if (WIFSTOPPED(status)) {
    ::kill(child, SIGKILL);
    int ignored = 0;
    ::waitpid(child, &ignored, 0);
  }
  return status;
}

TEST(FaultPlan, DiesAndStops) {
  const int died = status_after_hit(plan_of("put:0:1:die"));
  EXPECT_TRUE(WIFSIGNALED(died) && WTERMSIG(died) == SIGKILL) << "status " << died;
  const int stopped = status_after_hit(plan_of("put:0:1:stop"));
  EXPECT_TRUE(WIFSTOPPED(stopped) && WSTOPSIG(stopped) == SIGSTOP) << "status " << stopped;
}

}  // namespace
}  // namespace tandem
