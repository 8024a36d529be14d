#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "fault/every_call.hpp"

// A program queues calls, has one refused and returns the error: its tensors go before its stream has run
// them. It must end with that error and nothing else, and memory that is handed out meanwhile is nobody
// else's. Run under the address sanitizer too.

namespace tandem {
namespace {

using test::CallOfTest;
using test::Complaints;
using test::JobCase;
using test::RankContextOfTest;
using test::TensorsOfCalls;

constexpr std::int64_t kSize = test::kSizeOfCalls;

/// A program as the README has it. It returns when a call is refused, on one rank or on all.
Result<void> program(RankContextOfTest& rank, const CallOfTest& call, bool is_refused_on_all) {
  auto made = make_tensors_of_calls(rank);
  if (!made) return tl::unexpected(made.error());
  TensorsOfCalls tensors = *std::move(made);
  if (auto done = rank.stream.sleep(std::chrono::milliseconds(20)); !done) return done;
  // Often enough to be launched as a graph, where there are graphs.
  for (int i = 0; i < 5; ++i) {
    auto done = call.enqueue(rank, tensors);
    if (!done && done.error().code() == ErrorCode::kInvalidArgument)
      return fail(ErrorCode::kInternal, "the test's own call: " + done.error().to_string());
    if (!done) return done;
  }
  const bool is_refused = is_refused_on_all || rank.group.rank() == 1;
  const TensorView wrong = is_refused ? tensors.shard.view().narrow(1, 0, 5) : tensors.shard.view();
  return test::gather_of_calls(rank, tensors, wrong, Algorithm::kAuto);
}

class FusedEarlyReturn : public ::testing::TestWithParam<JobCase> {
 protected:
  /// Memory that is taken while the program's calls are queued stays as it is.
  static Result<void> run(RankContextOfTest& rank, const CallOfTest& call, bool is_refused_on_all,
                          Complaints& complaints) {
    const auto ended = program(rank, call, is_refused_on_all);
    std::vector<Tensor> others;
    for (int i = 0; i < 40; ++i)
      others.push_back(rank.device.allocate_tensor({kSize, kSize >> (i % 3)}, DType::kBF16).value());
    static_cast<void>(rank.stream.synchronize());
    for (const Tensor& other : others) {
      std::vector<std::uint8_t> bytes(static_cast<std::size_t>(other.view().size_bytes()));
      if (auto copied = rank.device.copy_to_host(other.view(), bytes.data()); !copied) return copied;
      if (bytes != std::vector<std::uint8_t>(bytes.size(), 0)) complaints.add("other memory was written to");
    }
    const bool is_refused = is_refused_on_all || rank.group.rank() == 1;
    if (is_refused == (!ended && ended.error().code() == ErrorCode::kInvalidArgument)) return {};
    complaints.add(call.name + ": rank " + std::to_string(rank.group.rank()) + ": " +
                   (ended ? "ok" : ended.error().to_string()));
    return {};
  }
};

TEST_P(FusedEarlyReturn, ends_with_the_refusal_and_nothing_else) {
  for (const CallOfTest& call : test::every_call()) {
    if (!GetParam().is_on_cpu() && !call.is_for_gpus) continue;
    for (const bool is_refused_on_all : {true, false}) {
      SCOPED_TRACE(call.name + (is_refused_on_all ? ", refused on all ranks" : ", refused on one rank"));
      Complaints complaints;
      test::on_ranks(GetParam(), test::quick_config(), complaints,
                     [&](RankContextOfTest& rank) { return run(rank, call, is_refused_on_all, complaints); });
      EXPECT_EQ(complaints.text(), "");
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, FusedEarlyReturn, ::testing::ValuesIn(test::exact_cases({3})),
                         test::job_name);

}  // namespace
}  // namespace tandem
