#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "bootstrap/flight_recorder.hpp"

namespace tandem {
namespace {

using bootstrap::FlightRing;

constexpr std::uint64_t kNumCalls = FlightRing::kNumCalls;

TEST(FlightRing, HoldsTheLastCallsInTheirOrder) {
  const auto ring = std::make_unique<FlightRing>();
  EXPECT_TRUE(ring->read().empty());
  const std::uint64_t first = ~std::uint64_t{0} - 10;  // numbers wrap
  for (std::uint64_t i = 0; i < kNumCalls + 20; ++i) ring->enter(first + i, i, "op " + std::to_string(i));
  const auto calls = ring->read();
  ASSERT_EQ(calls.size(), kNumCalls);
  for (std::uint64_t i = 0; i < kNumCalls; ++i) {
    EXPECT_EQ(calls[i].sequence, first + 20 + i);
    EXPECT_EQ(calls[i].fingerprint, 20 + i);
    EXPECT_EQ(calls[i].op, "op " + std::to_string(20 + i));
  }
}

TEST(FlightRing, NotesHowFarACallCame) {
  const auto ring = std::make_unique<FlightRing>();
  ring->enter(7, 1, std::string(200, 'x'));
  EXPECT_EQ(ring->read()[0].op, std::string(71, 'x')) << "what fits";
  EXPECT_GT(ring->read()[0].entered_ns, 0);
  EXPECT_EQ(ring->read()[0].agreed_ns, 0);
  ring->reach(7, CallState::kEnqueued);
  ring->reach(7, CallState::kAgreed);  // the others came later
  EXPECT_EQ(ring->read()[0].state, CallState::kEnqueued) << "it went back";
  EXPECT_GT(ring->read()[0].agreed_ns, 0);
  ring->reach(7, CallState::kEnded);
  EXPECT_EQ(ring->read()[0].state, CallState::kEnded);
  EXPECT_GE(ring->read()[0].ended_ns, ring->read()[0].enqueued_ns);
  ring->enter(7 + kNumCalls, 2, "later");
  ring->reach(7, CallState::kEnded);
  EXPECT_EQ(ring->read()[0].state, CallState::kEntered) << "the state of a call that is gone";
  EXPECT_EQ(ring->read()[0].ended_ns, 0);
  ring->refuse(8 + kNumCalls, "InvalidArgument: no");
  EXPECT_EQ(ring->read()[1].state, CallState::kRefused);
  EXPECT_EQ(ring->read()[1].op, "InvalidArgument: no");
}

/// Also where an assertion ends the test.
struct JoinAtEnd {
  std::thread& thread;
  ~JoinAtEnd() { thread.join(); }
};

/// So long that it lies in two cache lines: a processor writes and reads one line almost at once.
std::string long_op(std::uint64_t i) {
  constexpr int kBytes = 60;
  const std::string number = std::to_string(i);
  return std::string(kBytes - number.size(), '.') + number;
}

TEST(FlightRing, IsReadWhileItIsWritten) {
  const auto ring = std::make_unique<FlightRing>();
  constexpr std::uint64_t kCalls = 1'000'000;
  std::atomic<bool> is_written{false};
  std::thread writer([&] {
    for (std::uint64_t i = 0; i < kCalls; ++i) ring->enter(i, i, long_op(i));
    is_written = true;
  });
  const JoinAtEnd join{writer};
  while (!is_written) {
    const auto calls = ring->read();
    for (const CallRecord& call : calls) {
      ASSERT_EQ(call.fingerprint, call.sequence) << "two calls in one";
      ASSERT_EQ(call.op, long_op(call.sequence));
    }
  }
  EXPECT_EQ(ring->read().size(), kNumCalls);
}

TEST(FlightRing, IsReadWhileOnePlaceIsWrittenAgainAndAgain) {
  const auto ring = std::make_unique<FlightRing>();
  constexpr std::uint64_t kCalls = 2'000'000;
  // A sanitizer on a busy machine takes minutes for all of them.
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  std::atomic<bool> is_written{false};
  std::thread writer([&] {
    for (std::uint64_t i = 0; i < kCalls; ++i) {
      if (i % 1024 == 0 && std::chrono::steady_clock::now() > end) break;
      ring->enter(i * kNumCalls, i + 1, long_op(i));
      ring->refuse(i * kNumCalls, long_op(i + 1));
    }
    is_written = true;
  });
  const JoinAtEnd join{writer};
  while (!is_written) {
    const auto call = ring->calls[0].read();
    if (!call) continue;
    const std::uint64_t i = call->sequence / kNumCalls;
    if (call->fingerprint != 0) {
      ASSERT_EQ(call->fingerprint, i + 1) << "two calls in one";
      ASSERT_EQ(call->op, long_op(i));
      ASSERT_EQ(call->state, CallState::kEntered);
    } else {
      ASSERT_EQ(call->op, long_op(i + 1)) << "the refusal of another call, or half of one";
    }
  }
  EXPECT_EQ(ring->read().size(), 1U);
}

FlightRecord record_of(std::initializer_list<std::vector<CallRecord>> ranks) {
  FlightRecord record;
  for (const auto& calls : ranks)
    record.ranks.push_back({.rank = static_cast<int>(record.ranks.size()), .calls = calls});
  return record;
}

CallRecord call(std::uint64_t sequence, std::uint64_t fingerprint, CallState state) {
  return {.sequence = sequence,
          .fingerprint = fingerprint,
          .op = "op" + std::to_string(fingerprint),
          .state = state};
}

constexpr auto kEntered = CallState::kEntered;
constexpr auto kAgreed = CallState::kAgreed;
constexpr auto kEnded = CallState::kEnded;

TEST(FirstDivergence, NamesTheRankAndTheOp) {
  EXPECT_FALSE(first_divergence({}));
  EXPECT_FALSE(first_divergence(record_of({{call(1, 5, kEnded)}, {call(1, 5, kEnded)}})));

  const auto missing = first_divergence(record_of({{call(1, 5, kEnded), call(2, 6, kEntered)},
                                                   {call(1, 5, kEnded)},
                                                   {call(1, 5, kEnded), call(2, 6, kEntered)}}));
  ASSERT_TRUE(missing);
  EXPECT_EQ(missing->rank, 1);
  EXPECT_EQ(missing->sequence, 2U);
  EXPECT_EQ(missing->op, "op6");
  EXPECT_EQ(missing->why, "rank 1 has not come to it");

  const auto other =
      first_divergence(record_of({{call(1, 5, kEntered)}, {call(1, 5, kEntered)}, {call(1, 9, kEntered)}}));
  ASSERT_TRUE(other);
  EXPECT_EQ(other->rank, 2);
  EXPECT_EQ(other->op, "op5");
  EXPECT_EQ(other->why, "rank 2 runs 'op9'");

  const auto behind = first_divergence(record_of({{call(1, 5, kEnded)}, {call(1, 5, kAgreed)}}));
  ASSERT_TRUE(behind);
  EXPECT_EQ(behind->rank, 1);
  EXPECT_EQ(behind->why, "rank 1 has agreed on it, rank 0 has ended it");

  const auto refused =
      first_divergence(record_of({{call(1, 5, kEntered)}, {call(1, 7, CallState::kRefused)}}));
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->rank, 1);
  EXPECT_EQ(refused->why, "rank 1 refused it: op7");

  const auto silent = first_divergence(record_of({{call(3, 5, kEntered)}, {}}));
  ASSERT_TRUE(silent);
  EXPECT_EQ(silent->rank, 1);
}

TEST(FirstDivergence, LooksOnlyAtWhatAllRingsStillHold) {
  // Rank 0 is ahead by one, so its ring has forgotten call 1.
  const auto found = first_divergence(
      record_of({{call(2, 5, kEnded), call(3, 5, kEntered)}, {call(1, 5, kEnded), call(2, 5, kEnded)}}));
  ASSERT_TRUE(found);
  EXPECT_EQ(found->rank, 1);
  EXPECT_EQ(found->sequence, 3U);
}

}  // namespace
}  // namespace tandem
