#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <cstring>
#include <thread>

#include "support/leak_oracle.hpp"
#include "support/process_ranks.hpp"

namespace tandem {
namespace {

using testing::describe;
using testing::LeakOracle;
using testing::RankFunction;
using testing::RankProcess;
using testing::run_process_ranks;

/// Every rank gives its number once per round, in groups that are made and destroyed `rounds` times.
const RankFunction kGather("gather", [](RankProcess& self) -> Result<void> {
  const int rounds = std::stoi(self.arguments.at(0));
  for (int round = 0; round < rounds; ++round) {
    auto group = self.create_group("recycled");
    if (!group) return tl::unexpected(group.error());
    const int mine = self.rank() * 1000 + round;
    const auto all = (*group)->all_gather(std::as_bytes(std::span(&mine, 1)), "numbers");
    if (!all) return tl::unexpected(all.error());
    for (int r = 0; r < self.size(); ++r) {
      int got = -1;
      std::memcpy(&got, (*all)[static_cast<std::size_t>(r)].data(), sizeof(got));
      EXPECT_EQ(got, r * 1000 + round)
          << "round " << round << ", rank " << self.rank() << " about rank " << r;
    }
  }
  return {};
});

const RankFunction kReport("report", [](RankProcess& self) -> Result<void> {
  if (self.rank() == 1) return fail(ErrorCode::kNumeric, "rank 1 does not like its numbers", 7);
  auto group = self.create_group();  // never complete: rank 1 is not there
  if (!group) return tl::unexpected(group.error());
  return {};
});

const RankFunction kExit("exit", [](RankProcess& self) -> Result<void> {
  if (self.rank() == 0) std::_Exit(3);
  std::this_thread::sleep_for(std::chrono::minutes(1));
  return {};
});

TEST(Job, RanksFormAGroupAgainAndAgain) {
  for (const int world : {1, 2, 3, 4, 8}) {
    const LeakOracle oracle;
    const JobOutcome outcome = run_process_ranks(world, "gather", {"5"});
    EXPECT_TRUE(outcome.status()) << "world " << world << "\n" << describe(outcome);
    EXPECT_EQ(oracle.leaks(), "") << "world " << world;
  }
}

TEST(Job, TheFailingRanksErrorIsTheJobs) {
  testing::RankOptions options;
  options.grace = std::chrono::milliseconds(100);
  const JobOutcome outcome = run_process_ranks(3, "report", {}, options);
  EXPECT_EQ(outcome.first_failed, 1) << describe(outcome);
  ASSERT_FALSE(outcome.status());
  EXPECT_EQ(outcome.status().error().code(), ErrorCode::kNumeric);
  EXPECT_EQ(outcome.status().error().text(), "rank 1 does not like its numbers");
  EXPECT_EQ(outcome.status().error().native_code(), 7);
}

TEST(Job, ARankThatEndsWithoutAWordIsNamed) {
  testing::RankOptions options;
  options.grace = std::chrono::milliseconds(100);
  const JobOutcome outcome = run_process_ranks(2, "exit", {}, options);
  EXPECT_EQ(outcome.first_failed, 0) << describe(outcome);
  ASSERT_FALSE(outcome.status());
  EXPECT_EQ(outcome.status().error().text(), "rank 0 ended with exit code 3 and did not say why");
  EXPECT_EQ(outcome.ranks.at(1).signal, SIGKILL) << "the job ends the others after the grace";
}

TEST(Job, AMissingProgramIsADriverErrorAndNothingIsLeft) {
  const LeakOracle oracle;
  const auto job = Job::start({.ranks = 2, .arguments = {}, .program = "/nowhere/at/all"});
  ASSERT_FALSE(job);
  EXPECT_EQ(job.error().code(), ErrorCode::kDriver) << job.error().to_string();
  EXPECT_NE(job.error().text().find("/nowhere/at/all"), std::string::npos) << job.error().to_string();
  EXPECT_EQ(oracle.leaks(), "");
}

TEST(Job, AnInterpretersArgumentsComeBeforeTheLaunchers) {
  // $0 is the script's name, $1 and $2 are its arguments.
  const std::string script = "case \"$0 $1 $2\" in 'script --tandem-rank='*':1 mine') exit 5 ;; esac";
  const auto job = Job::start({.ranks = 1,
                               .arguments = {"mine"},
                               .program = "/bin/sh",
                               .interpreter_arguments = {"-c", script, "script"}});
  ASSERT_TRUE(job) << job.error().to_string();
  const auto outcome = (*job)->wait(Deadline::after(std::chrono::seconds(30)));
  ASSERT_TRUE(outcome) << outcome.error().to_string();
  EXPECT_EQ(outcome->ranks.at(0).exit_code, 5) << describe(*outcome);
}

TEST(Job, TheProgramIsCalledByTheNameThatIsGiven) {
  // The shell's $0 without a script: what an interpreter finds its own files by.
  const auto job =
      Job::start({.ranks = 1,
                  .arguments = {},
                  .program = "/bin/sh",
                  .interpreter_arguments = {"-c", "test \"$(cat /proc/$$/cmdline | head -c 7)\" = /bin/sh"}});
  ASSERT_TRUE(job) << job.error().to_string();
  const auto outcome = (*job)->wait(Deadline::after(std::chrono::seconds(30)));
  ASSERT_TRUE(outcome) << outcome.error().to_string();
  EXPECT_EQ(outcome->ranks.at(0).exit_code, 0) << describe(*outcome);
}

TEST(Job, NoRanksAreRefused) {
  const auto job = Job::start({.ranks = 0, .arguments = {}});
  ASSERT_FALSE(job);
  EXPECT_EQ(job.error().code(), ErrorCode::kInvalidArgument);
}

TEST(Job, TheEndOfTheJobObjectEndsItsRanks) {
  const LeakOracle oracle;
  {
    const auto ranks = testing::start_process_ranks(2, "exit");
    EXPECT_GT(ranks.pid(1), 0);
  }
  EXPECT_EQ(oracle.leaks(), "");
}

}  // namespace
}  // namespace tandem
