// Ranks that end, by whatever code, before a group is complete.
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <thread>

#include "support/leak_oracle.hpp"
#include "support/process_ranks.hpp"

namespace tandem {
namespace {

using std::chrono::milliseconds;
using testing::describe;
using testing::LeakOracle;
using testing::RankFunction;
using testing::RankOptions;
using testing::RankProcess;
using testing::run_process_ranks;

/// No deadline and no grace passes in these tests: who is told is told by the end of the process.
RankOptions patient() {
  RankOptions options;
  options.config.rendezvous_timeout = milliseconds(50'000);
  options.grace = milliseconds(50'000);
  return options;
}

void end_by(const std::string& how) {
  if (how == "kill") ::raise(SIGKILL);
  std::_Exit(std::stoi(how));
}

bool is_in(const std::string& ranks, int rank) {
  return ranks.find(std::to_string(rank)) != std::string::npos;
}

/// The ranks of the first argument end as the second says, the others make a group.
const RankFunction kEndEarly("end_early", [](RankProcess& self) -> Result<void> {
  if (is_in(self.arguments.at(0), self.rank())) end_by(self.arguments.at(1));
  auto group = self.create_group();
  if (!group) return tl::unexpected(group.error());
  return {};
});

struct End {
  const char* how;
  const char* text;
};
constexpr End kEnds[] = {{"0", "ended with exit code 0"},
                         {"5", "ended with exit code 5"},
                         {"kill", "was ended by signal 9 (Killed)"}};

TEST(EarlyEnd, TheOthersNameWhoEndedBeforeAllHadJoined) {
  for (const auto& [how, text] : kEnds) {
    for (const char* who : {"0", "2", "3", "12", "013"}) {
      const LeakOracle oracle;
      const JobOutcome outcome = run_process_ranks(4, "end_early", {who, how}, patient());
      for (int r = 0; r < 4; ++r) {
        if (is_in(who, r)) continue;
        const auto& error = outcome.ranks.at(static_cast<std::size_t>(r)).error;
        ASSERT_TRUE(error) << describe(outcome);
        EXPECT_EQ(error->code(), ErrorCode::kPeerLost) << describe(outcome);
        EXPECT_EQ(error->text().find("group 'world': rank "), 0U) << describe(outcome);
        // The first to end may be told before the next one has ended.
        bool is_named = false;
        for (int lost = 0; lost < 4; ++lost) {
          const std::string name = "rank " + std::to_string(lost) + " of 4 " + text;
          is_named = is_named || (is_in(who, lost) && error->text().find(name) != std::string::npos);
        }
        EXPECT_TRUE(is_named) << describe(outcome);
        EXPECT_NE(error->text().find(" before all had joined"), std::string::npos) << describe(outcome);
      }
      EXPECT_FALSE(outcome.status()) << who << how;
      EXPECT_EQ(oracle.leaks(), "");
    }
  }
}

// The rank's own end is the job's error where it says that something went wrong.
TEST(EarlyEnd, TheJobNamesTheRankThatFailedFirst) {
  const JobOutcome outcome = run_process_ranks(3, "end_early", {"1", "5"}, patient());
  EXPECT_EQ(outcome.first_failed, 1) << describe(outcome);
  EXPECT_EQ(outcome.status().error().text(), "rank 1 ended with exit code 5 and did not say why");
}

/// /bin/sh, which ends as the ranks of `who` by `how` and becomes this program in the other ranks.
LaunchOptions through_a_shell(int ranks, const std::string& who, const std::string& how) {
  std::array<char, 4096> self{};
  EXPECT_GT(::readlink("/proc/self/exe", self.data(), self.size() - 1), 0);
  const std::string end = how == "kill" ? "kill -9 $$" : "exit " + how;
  const std::string script = "rank=${1#*:}; rank=${rank%:*}; case " + who + " in *$rank*) " + end +
                             ";; esac; exec " + self.data() + " \"$@\"";
  return {.ranks = ranks,
          .arguments = {"end_early", "30000", "50000", "", "none", "0"},
          .program = "/bin/sh",
          .interpreter_arguments = {"-c", script, "sh"},
          .grace = milliseconds(50'000)};
}

JobOutcome run(const LaunchOptions& options) {
  const auto job = Job::start(options);
  EXPECT_TRUE(job) << job.error().to_string();
  return (*job)->wait(Deadline::after(std::chrono::seconds(60))).value();
}

TEST(EarlyEnd, ARankThatNeverJoinsTheJobFailsItWhateverItsExitCode) {
  for (const auto& [how, text] : kEnds) {
    const LeakOracle oracle;
    const JobOutcome outcome = run(through_a_shell(3, "2", how));
    EXPECT_EQ(outcome.first_failed, 2) << describe(outcome);
    ASSERT_FALSE(outcome.status());
    EXPECT_EQ(outcome.status().error().code(), ErrorCode::kPeerLost);
    EXPECT_EQ(outcome.status().error().text(),
              std::string("rank 2 ") + text + " before it joined the job (by join_job())");
    for (const int r : {0, 1}) {
      const auto& error = outcome.ranks.at(static_cast<std::size_t>(r)).error;
      ASSERT_TRUE(error) << describe(outcome);
      EXPECT_NE(error->text().find(std::string("rank 2 of 3 ") + text), std::string::npos)
          << describe(outcome);
    }
    EXPECT_EQ(oracle.leaks(), "");
  }
}

TEST(EarlyEnd, WhereNoRankJoinsTheJobFails) {
  const JobOutcome outcome = run(through_a_shell(2, "01", "0"));
  ASSERT_FALSE(outcome.status());
  EXPECT_NE(outcome.status().error().text().find("ended with exit code 0 before it joined the job"),
            std::string::npos)
      << outcome.status().error().text();
}

TEST(EarlyEnd, ARankMayEndWhenItsPartIsDone) {
  const JobOutcome outcome = run_process_ranks(3, "end_early", {"none", "0"}, patient());
  EXPECT_TRUE(outcome.status()) << describe(outcome);
}

/// A group of some of the job's ranks is not disturbed by the end of another one.
const RankFunction kSmallGroup("small_group_beside_an_end", [](RankProcess& self) -> Result<void> {
  if (self.rank() == 2) return {};
  std::this_thread::sleep_for(milliseconds(self.rank() == 0 ? 0 : 300));
  auto group = Group::create({self.rank(), 2, "pair", self.context.store, self.config});
  if (!group) return tl::unexpected(group.error());
  return {};
});

TEST(EarlyEnd, AGroupOfFewerRanksIsNotDisturbedByTheEndOfAnother) {
  const JobOutcome outcome = run_process_ranks(3, "small_group_beside_an_end", {}, patient());
  EXPECT_TRUE(outcome.status()) << describe(outcome);
}

/// Rank 2 ends as the argument says while the others make a subgroup with it.
const RankFunction kSubgroup("subgroup_with_a_lost_rank", [](RankProcess& self) -> Result<void> {
  auto group = self.create_group();
  if (!group) return tl::unexpected(group.error());
  if (self.rank() == 2) {
    std::this_thread::sleep_for(milliseconds(100));
    if (self.arguments.at(0) == "kill") ::raise(SIGKILL);
    return {};
  }
  constexpr int kRanks[] = {1, 2, 0};
  const auto sub = (*group)->subgroup(kRanks, "turned");
  if (!sub) return tl::unexpected(sub.error());
  return {};
});

TEST(EarlyEnd, ASubgroupNamesAMemberThatHasLeftOrDied) {
  for (const bool dies : {false, true}) {
    const JobOutcome outcome =
        run_process_ranks(3, "subgroup_with_a_lost_rank", {dies ? "kill" : "leave"}, patient());
    for (const int r : {0, 1}) {
      const auto& error = outcome.ranks.at(static_cast<std::size_t>(r)).error;
      ASSERT_TRUE(error) << describe(outcome);
      EXPECT_EQ(error->code(), ErrorCode::kPeerLost) << describe(outcome);
      const char* const text = dies ? "rank 2 (pid" : "rank 1 can not join: as rank 2 it has left 'world'";
      EXPECT_NE(error->text().find(text), std::string::npos) << describe(outcome);
    }
  }
}

}  // namespace
}  // namespace tandem
