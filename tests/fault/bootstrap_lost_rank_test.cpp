#include <gtest/gtest.h>

#include <sys/resource.h>
#include <unistd.h>
#include <chrono>
#include <csignal>
#include <fstream>
#include <thread>

#include "support/leak_oracle.hpp"
#include "support/process_ranks.hpp"

namespace tandem {
namespace {

using std::chrono::milliseconds;
using testing::describe;
using testing::LeakOracle;
using testing::ProcessRanks;
using testing::RankFunction;
using testing::RankOptions;
using testing::RankProcess;
using testing::start_process_ranks;

std::int64_t now_ns() {
  return std::chrono::steady_clock::now().time_since_epoch().count();
}

/// Meets all once, tells its readiness, then waits for a rank that will not come: the one in the argument.
const RankFunction kWaitForLost("wait_for_lost", [](RankProcess& self) -> Result<void> {
  auto group = self.create_group();
  if (!group) return tl::unexpected(group.error());
  self.publish("ready", "");
  if (self.rank() == std::stoi(self.arguments.at(0))) {
    if (self.arguments.at(1) == "leave") return {};
    for (;;) ::pause();
  }
  const auto gathered = (*group)->all_gather({}, "never complete");
  self.publish("when", std::to_string(now_ns()));
  if (gathered) return fail(ErrorCode::kInternal, "the exchange was complete");
  const auto again = (*group)->all_gather({}, "after the error");
  EXPECT_FALSE(again) << "a poisoned group must stay so";
  EXPECT_EQ(again ? "" : again.error().text(), gathered.error().text());
  return tl::unexpected(gathered.error());
});

RankOptions options_with(milliseconds timeout) {
  RankOptions options;
  options.config.rendezvous_timeout = timeout;
  return options;
}

void wait_until_ready(const ProcessRanks& ranks, int world) {
  for (int r = 0; r < world; ++r) ASSERT_TRUE(ranks.published(r, "ready")) << "rank " << r;
  std::this_thread::sleep_for(milliseconds(50));  // most sleep in the futex by now
}

/// Every rank but `lost` must end with `code` and a text that names `lost`.
void expect_all_name(const JobOutcome& outcome, int lost, ErrorCode code, const std::string& what) {
  for (const RankOutcome& rank : outcome.ranks) {
    if (rank.rank == lost) continue;
    ASSERT_TRUE(rank.error) << describe(outcome);
    EXPECT_EQ(rank.error->code(), code) << describe(outcome);
    EXPECT_NE(rank.error->text().find("rank " + std::to_string(lost) + " (pid"), std::string::npos)
        << describe(outcome);
    EXPECT_NE(rank.error->text().find(what), std::string::npos) << describe(outcome);
  }
}

void kill_one_of(int world) {
  const int lost = world / 2;
  auto ranks = start_process_ranks(world, "wait_for_lost", {std::to_string(lost), "stay"},
                                   options_with(milliseconds(30'000)));
  wait_until_ready(ranks, world);
  const std::int64_t killed_ns = now_ns();
  ranks.kill(lost);
  for (int r = 0; r < world; ++r) {
    if (r == lost) continue;
    const auto when = ranks.published(r, "when");
    ASSERT_TRUE(when);
    // Promised: 100 ms. Five times that for a busy machine.
    EXPECT_LT((std::stoll(*when) - killed_ns) / 1'000'000, 500) << "rank " << r << " of " << world;
  }
  const JobOutcome outcome = ranks.wait();
  EXPECT_EQ(outcome.first_failed, lost) << describe(outcome);
  EXPECT_EQ(outcome.ranks.at(static_cast<std::size_t>(lost)).signal, SIGKILL);
  expect_all_name(outcome, lost, ErrorCode::kPeerLost, "died");
}

TEST(LostRank, AKilledRankIsSeenByAllSurvivors) {
  for (const int world : {2, 4, 8}) {
    const LeakOracle oracle;
    kill_one_of(world);
    EXPECT_EQ(oracle.leaks(), "") << "world " << world;
  }
}

std::int64_t cpu_ms_of_thread() {
  rusage usage{};
  ::getrusage(RUSAGE_THREAD, &usage);
  const auto ms = [](const timeval& time) { return time.tv_sec * 1000 + time.tv_usec / 1000; };
  return ms(usage.ru_utime) + ms(usage.ru_stime);
}

/// Meets all, waits until the test lets it go on, then takes part in an exchange. A rank that gets an error
/// asks again.
const RankFunction kExchangeWhenTold("exchange_when_told", [](RankProcess& self) -> Result<void> {
  auto group = self.create_group();
  if (!group) return tl::unexpected(group.error());
  self.publish("ready", "");
  if (auto told = self.wait_for("go " + std::to_string(self.rank())); !told) return told;
  const auto begin = std::chrono::steady_clock::now();
  const std::int64_t cpu_before = cpu_ms_of_thread();
  const auto gathered = (*group)->all_gather({}, "exchange");
  const auto waited = std::chrono::steady_clock::now() - begin;
  self.publish("waited", std::to_string(std::chrono::duration_cast<milliseconds>(waited).count()));
  self.publish("cpu", std::to_string(cpu_ms_of_thread() - cpu_before));
  if (gathered) return {};
  const auto again = (*group)->all_gather({}, "exchange");
  EXPECT_EQ(again ? "" : again.error().text(), gathered.error().text());
  return tl::unexpected(gathered.error());
});

/// Stops one rank until the others have given up.
void stop_and_resume(int world) {
  constexpr int kTimeoutMs = 2000;  // in which eight processes also start and meet, on a busy machine
  auto ranks = start_process_ranks(world, "exchange_when_told", {}, options_with(milliseconds(kTimeoutMs)));
  wait_until_ready(ranks, world);
  ranks.stop(1);
  for (int r = 0; r < world; ++r) ranks.announce("go " + std::to_string(r));
  for (int r = 0; r < world; ++r) {
    if (r == 1) continue;
    const auto waited = ranks.published(r, "waited");
    const auto cpu = ranks.published(r, "cpu");
    ASSERT_TRUE(waited && cpu);
    EXPECT_GE(std::stoi(*waited), kTimeoutMs / 2) << "rank " << r;
    // Promised: 100 ms later. Far more for a busy machine.
    EXPECT_LT(std::stoi(*waited), kTimeoutMs + 5000) << "rank " << r;
    // Promised: 5 % of the wait. Time of a processor does not depend on who else uses it.
    EXPECT_LT(std::stoi(*cpu), kTimeoutMs / 4) << "rank " << r << " spins";
  }
  ranks.resume(1);
  const JobOutcome outcome = ranks.wait();
  expect_all_name(outcome, 1, ErrorCode::kTimeout, "is stopped");
  const auto& resumed = outcome.ranks.at(1).error;
  ASSERT_TRUE(resumed) << "the resumed rank hears of it\n" << describe(outcome);
  EXPECT_EQ(resumed->to_string(), outcome.ranks.at(0).error->to_string());
}

TEST(LostRank, AStoppedRankIsNamedAndGetsTheSameErrorWhenItGoesOn) {
  for (const int world : {2, 3, 8}) stop_and_resume(world);
}

TEST(LostRank, ARankThatLeavesEarlyIsNamed) {
  auto ranks = start_process_ranks(3, "wait_for_lost", {"1", "leave"}, options_with(milliseconds(30'000)));
  const JobOutcome outcome = ranks.wait();
  expect_all_name(outcome, 1, ErrorCode::kPeerLost, "has left the group");
}

/// Starts a job of its own and tells the pids; the test kills it.
const RankFunction kLauncher("launcher", [](RankProcess& self) -> Result<void> {
  auto ranks = start_process_ranks(2, "wait_for_lost", {"1", "stay"}, options_with(milliseconds(30'000)));
  wait_until_ready(ranks, 2);
  self.publish("pids", std::to_string(ranks.pid(0)) + " " + std::to_string(ranks.pid(1)));
  static_cast<void>(ranks.wait());
  return {};
});

bool is_gone(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string line;
  if (!std::getline(file, line)) return true;
  const auto state = line.rfind(')') + 2;
  return line[state] == 'Z' || line[state] == 'X';
}

void kill_launcher() {
  auto launcher = start_process_ranks(1, "launcher");
  const auto pids = launcher.published(0, "pids");
  ASSERT_TRUE(pids) << pids.error().to_string();
  const pid_t first = std::stoi(*pids);
  const pid_t second = std::stoi(pids->substr(pids->find(' ')));
  ASSERT_FALSE(is_gone(first));
  launcher.kill(0);
  static_cast<void>(launcher.wait());
  for (int i = 0; i < 250 && !(is_gone(first) && is_gone(second)); ++i)
    std::this_thread::sleep_for(milliseconds(20));
  EXPECT_TRUE(is_gone(first)) << "pid " << first;
  EXPECT_TRUE(is_gone(second)) << "pid " << second;
}

TEST(LostLauncher, ItsRanksEndWithIt) {
  const LeakOracle oracle;
  kill_launcher();
  EXPECT_EQ(oracle.leaks(), "");
}

}  // namespace
}  // namespace tandem
