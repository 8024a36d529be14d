#include "support/process_ranks.hpp"

#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>
#include <map>
#include <span>
#include <stdexcept>

#include "support/rank_main.hpp"

namespace tandem::testing {
namespace {

std::map<std::string, RankFunction::Body, std::less<>>& functions() {
  static std::map<std::string, RankFunction::Body, std::less<>> table;
  return table;
}

std::string published_key(int rank, std::string_view key) {
  return "test/published/" + std::to_string(rank) + "/" + std::string(key);
}

std::string announced_key(std::string_view key) {
  return "test/announced/" + std::string(key);
}

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

// Function, op timeout, rendezvous timeout, fault, then the function's own arguments.
constexpr int kNumOwnArguments = 4;

RankProcess make_rank_process(const RankContext& context, char** argv, int argc) {
  RankProcess self{context, {}, {}};
  self.config.op_timeout = std::chrono::milliseconds(std::atoll(argv[2]));
  self.config.rendezvous_timeout = std::chrono::milliseconds(std::atoll(argv[3]));
  self.config.fault = argv[4];
  for (int i = 1 + kNumOwnArguments; i < argc; ++i) self.arguments.emplace_back(argv[i]);
  return self;
}

Result<void> call(RankFunction::Body body, RankProcess& self) {
  try {
    auto result = body(self);
    const bool has_failed = ::testing::UnitTest::GetInstance()->ad_hoc_test_result().Failed();
    if (result && has_failed)
      return fail(ErrorCode::kInternal, "an expectation failed in this rank, see its output");
    return result;
  } catch (const std::exception& exception) {
    return fail(ErrorCode::kInternal, std::string("rank function threw: ") + exception.what());
  }
}

}  // namespace

RankFunction::RankFunction(const char* name, Body body) {
  functions().emplace(name, body);
}

int run_rank(const RankContext& context, int argc, char** argv) {
  int num_gtest_arguments = 1;
  ::testing::InitGoogleTest(&num_gtest_arguments, argv);
  const auto found =
      argc > kNumOwnArguments ? functions().find(std::string_view(argv[1])) : functions().end();
  if (found == functions().end()) {
    report_failure(context,
                   Error(ErrorCode::kInvalidArgument, "no rank function of that name is registered"));
    return 1;
  }
  RankProcess self = make_rank_process(context, argv, argc);
  const auto result = call(found->second, self);
  if (result) return 0;
  report_failure(context, result.error());
  return 1;
}

Result<std::unique_ptr<Group>> RankProcess::create_group(std::string name) const {
  return Group::create({rank(), size(), std::move(name), context.store, config});
}

void RankProcess::publish(std::string_view key, std::string_view text) const {
  const auto done = context.store->set(published_key(rank(), key), bytes_of(text));
  EXPECT_TRUE(done) << done.error().to_string();
}

Result<void> RankProcess::wait_for(std::string_view key) const {
  const auto value = context.store->get(announced_key(key), Deadline::after(std::chrono::minutes(1)));
  if (!value) return tl::unexpected(value.error());
  return {};
}

void ProcessRanks::kill(int rank) const {
  ::kill(pid(rank), SIGKILL);
}
void ProcessRanks::stop(int rank) const {
  ::kill(pid(rank), SIGSTOP);
}
void ProcessRanks::resume(int rank) const {
  ::kill(pid(rank), SIGCONT);
}

Result<std::string> ProcessRanks::published(int rank, std::string_view key) const {
  const auto bytes = job_->store().get(published_key(rank, key), Deadline::after(options_.deadline));
  if (!bytes) return tl::unexpected(bytes.error());
  return std::string(reinterpret_cast<const char*>(bytes->data()), bytes->size());
}

void ProcessRanks::announce(std::string_view key) const {
  const auto done = job_->store().set(announced_key(key), {});
  EXPECT_TRUE(done) << done.error().to_string();
}

JobOutcome ProcessRanks::wait() {
  auto outcome = job_->wait(Deadline::after(options_.deadline));
  if (outcome) return *std::move(outcome);
  ADD_FAILURE() << outcome.error().to_string();
  outcome = job_->wait(Deadline::never());  // all are killed by now
  return *std::move(outcome);
}

ProcessRanks start_process_ranks(int world, std::string_view function,
                                 const std::vector<std::string>& arguments, const RankOptions& options) {
  LaunchOptions launch;
  launch.ranks = world;
  launch.grace = options.grace;
  launch.arguments = {std::string(function), std::to_string(options.config.op_timeout.count()),
                      std::to_string(options.config.rendezvous_timeout.count()), options.config.fault};
  launch.arguments.insert(launch.arguments.end(), arguments.begin(), arguments.end());
  auto job = Job::start(launch);
  if (!job) throw std::runtime_error("cannot start the ranks: " + job.error().to_string());
  return ProcessRanks(*std::move(job), options);
}

JobOutcome run_process_ranks(int world, std::string_view function, const std::vector<std::string>& arguments,
                             const RankOptions& options) {
  return start_process_ranks(world, function, arguments, options).wait();
}

std::string describe(const JobOutcome& outcome) {
  std::string text;
  for (const RankOutcome& rank : outcome.ranks) {
    text += "rank " + std::to_string(rank.rank) + ": exit code " + std::to_string(rank.exit_code) +
            ", signal " + std::to_string(rank.signal) + (rank.error ? ", " + rank.error->to_string() : "") +
            "\n";
  }
  return text;
}

}  // namespace tandem::testing
