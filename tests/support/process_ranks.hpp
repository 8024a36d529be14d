#pragma once

// Ranks that are processes, for tests. Link `tandem_test_support` instead of GTest::gtest_main; it has the
// main().
//
//   const RankFunction kPing("ping", [](RankProcess& self) -> Result<void> {   // runs in every rank's
// process
//     auto group = self.create_group();
//     ...
//     self.publish("seen", "42");                                              // for the test to read
//     return {};                                                               // an Error becomes the rank's
// failure
//   });
//
//   TEST(Ping, Works) {
//     const JobOutcome outcome = run_process_ranks(4, "ping");
//     EXPECT_TRUE(outcome.status()) << describe(outcome);
//   }
//
// To kill or stop ranks while they run, start_process_ranks() and use pid(), kill(), stop(), resume(). A
// failed EXPECT in a rank fails that rank. See leak_oracle.hpp for "nothing is left behind".

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tandem/bootstrap/group.hpp>
#include <tandem/bootstrap/launcher.hpp>
#include <vector>

namespace tandem::testing {

/// What a rank function gets.
struct RankProcess {
  RankContext context;
  Config config;
  std::vector<std::string> arguments;

  [[nodiscard]] int rank() const { return context.rank; }
  [[nodiscard]] int size() const { return context.size; }
  [[nodiscard]] Result<std::unique_ptr<Group>> create_group(std::string name = "world") const;
  /// A text for ProcessRanks::published(); once per key.
  void publish(std::string_view key, std::string_view text) const;
  /// Waits for ProcessRanks::announce(key).
  [[nodiscard]] Result<void> wait_for(std::string_view key) const;
};

/// Declare at namespace scope: registers what run_process_ranks() calls by name.
class RankFunction {
 public:
  using Body = Result<void> (*)(RankProcess&);
  RankFunction(const char* name, Body body);
};

struct RankOptions {
  Config config;  ///< timeouts and faults reach the ranks; the rest is their default
  std::chrono::milliseconds deadline{60'000};
  std::chrono::milliseconds grace{5'000};
};

/// A running job of rank functions. Kills what is left when destroyed.
class ProcessRanks {
 public:
  explicit ProcessRanks(std::unique_ptr<Job> job, const RankOptions& options)
      : job_(std::move(job)), options_(options) {}

  [[nodiscard]] pid_t pid(int rank) const { return job_->pid(rank); }
  void kill(int rank) const;    ///< SIGKILL
  void stop(int rank) const;    ///< SIGSTOP
  void resume(int rank) const;  ///< SIGCONT
  /// What `rank` has published under `key`; waits for it, at most the job's deadline.
  [[nodiscard]] Result<std::string> published(int rank, std::string_view key) const;
  /// Lets RankProcess::wait_for(key) go on, in every rank.
  void announce(std::string_view key) const;
  /// Past the deadline the ranks are killed and the test has failed.
  [[nodiscard]] JobOutcome wait();

 private:
  std::unique_ptr<Job> job_;
  RankOptions options_;
};

/// Fails the test and aborts it by an exception if the job cannot be started.
[[nodiscard]] ProcessRanks start_process_ranks(int world, std::string_view function,
                                               const std::vector<std::string>& arguments = {},
                                               const RankOptions& options = {});

/// Starts the ranks and waits for their end.
[[nodiscard]] JobOutcome run_process_ranks(int world, std::string_view function,
                                           const std::vector<std::string>& arguments = {},
                                           const RankOptions& options = {});

/// How each rank ended, for failure messages.
[[nodiscard]] std::string describe(const JobOutcome& outcome);

}  // namespace tandem::testing
