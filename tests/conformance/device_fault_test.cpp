#include <chrono>
#include <cstdint>
#include <vector>

#include "conformance/device_backends.hpp"

// A fault met while work runs: who is told of it, what is skipped, and when it is over.

namespace tandem::test {
namespace {

using Words = std::vector<std::uint32_t>;

class DeviceFaultTest : public DeviceTest {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    if (!has_faults()) GTEST_SKIP() << "on this backend, work behind a fault runs all the same";
  }
};

TEST_P(DeviceFaultTest, IsReturnedOnceAndWhatFollowsIsSkipped) {
  const Tensor words = make_words({0, 0});
  ASSERT_TRUE(succeeds(stream_->stream_write_value32(words.view(), 0, 1)));
  fail_on(*stream_, ErrorCode::kNumeric, "first fault");
  fail_on(*stream_, ErrorCode::kTimeout, "second fault");
  ASSERT_TRUE(succeeds(stream_->stream_write_value32(words.view(), 1, 1)));
  EXPECT_TRUE(fails(stream_->synchronize(soon()), ErrorCode::kNumeric, {"first fault"}));
  EXPECT_EQ(read_words(words.view()), Words({1, 0}))
      << "work before the fault is done, work behind it skipped";
  EXPECT_TRUE(succeeds(stream_->synchronize(soon()))) << "a fault is told once";
  ASSERT_TRUE(succeeds(stream_->stream_write_value32(words.view(), 1, 2)));
  EXPECT_TRUE(succeeds(stream_->synchronize(soon())));
  EXPECT_EQ(read_words(words.view()), Words({1, 2})) << "the stream works again";
}

TEST_P(DeviceFaultTest, IsKeptWhenADeadlinePasses) {
  const auto gate = hold(*stream_);
  fail_on(*stream_, ErrorCode::kNumeric, "bad value");
  EXPECT_TRUE(
      fails(stream_->synchronize(Deadline::after(std::chrono::milliseconds(10))), ErrorCode::kTimeout));
  gate->open();
  EXPECT_TRUE(fails(stream_->synchronize(soon()), ErrorCode::kNumeric, {"bad value"}));
}

TEST_P(DeviceFaultTest, MarksBehindItAreReachedAndCarryIt) {
  const auto before = make_event();
  const auto behind = make_event();
  ASSERT_TRUE(succeeds(stream_->record(*before)));
  fail_on(*stream_, ErrorCode::kPeerLost, "rank 3 died");
  ASSERT_TRUE(succeeds(stream_->record(*behind)));
  EXPECT_TRUE(fails(behind->synchronize(soon()), ErrorCode::kPeerLost, {"rank 3 died"}));
  EXPECT_TRUE(succeeds(before->synchronize(soon())));
  EXPECT_TRUE(behind->is_done());
  EXPECT_TRUE(behind->elapsed_us(*before).has_value()) << "a mark behind a fault has a time";
  EXPECT_TRUE(fails(stream_->synchronize(soon()), ErrorCode::kPeerLost)) << "asking an event forgets nothing";
  EXPECT_TRUE(succeeds(behind->synchronize(soon()))) << "the fault was told";
}

TEST_P(DeviceFaultTest, ReachesAStreamThatWaitsForTheEvent) {
  const Tensor words = make_words({0});
  const auto event = make_event();
  const auto gate = hold(*stream_);
  fail_on(*stream_, ErrorCode::kPeerLost, "rank 1 died");
  ASSERT_TRUE(succeeds(stream_->record(*event)));
  ASSERT_TRUE(succeeds(other_->wait(*event)));
  ASSERT_TRUE(succeeds(other_->stream_write_value32(words.view(), 0, 1)));
  gate->open();
  EXPECT_TRUE(fails(other_->synchronize(soon()), ErrorCode::kPeerLost, {"rank 1 died"}));
  EXPECT_EQ(read_words(words.view()), Words({0})) << "work on bad data is skipped";
}

TEST_P(DeviceFaultTest, ReachesAStreamThatWaitsLate) {
  // The fault has happened before the wait is enqueued, but nobody was told.
  fail_on(*stream_, ErrorCode::kNumeric, "bad value");
  const auto event = make_event();
  ASSERT_TRUE(succeeds(stream_->record(*event)));
  EXPECT_TRUE(fails(event->synchronize(soon()), ErrorCode::kNumeric));
  ASSERT_TRUE(succeeds(other_->wait(*stream_)));
  EXPECT_TRUE(fails(other_->synchronize(soon()), ErrorCode::kNumeric, {"bad value"}));
}

TEST_P(DeviceFaultTest, ReachesAWaiterEvenIfToldMeanwhile) {
  // `other` is held in front of its wait until the host has been told by `stream`.
  const Tensor words = make_words({0});
  const auto source_gate = hold(*stream_);
  const auto gate = hold(*other_);
  fail_on(*stream_, ErrorCode::kNumeric, "bad value");
  ASSERT_TRUE(succeeds(other_->wait(*stream_)));
  ASSERT_TRUE(succeeds(other_->stream_write_value32(words.view(), 0, 1)));
  source_gate->open();
  EXPECT_TRUE(fails(stream_->synchronize(soon()), ErrorCode::kNumeric));
  gate->open();
  EXPECT_TRUE(fails(other_->synchronize(soon()), ErrorCode::kNumeric, {"bad value"}));
  EXPECT_EQ(read_words(words.view()), Words({0}));
}

TEST_P(DeviceFaultTest, ReachesAWaiterEvenIfAnotherWasToldMeanwhile) {
  const Tensor words = make_words({0});
  const auto gate = hold(*stream_);
  const auto other_gate = hold(*other_);
  fail_on(*stream_, ErrorCode::kNumeric, "first fault");
  ASSERT_TRUE(succeeds(other_->wait(*stream_)));
  ASSERT_TRUE(succeeds(other_->stream_write_value32(words.view(), 0, 1)));
  gate->open();
  EXPECT_TRUE(fails(stream_->synchronize(soon()), ErrorCode::kNumeric, {"first fault"}));
  fail_on(*stream_, ErrorCode::kNumeric, "second fault");
  EXPECT_TRUE(fails(stream_->synchronize(soon()), ErrorCode::kNumeric, {"second fault"}));
  other_gate->open();
  EXPECT_TRUE(fails(other_->synchronize(soon()), ErrorCode::kNumeric, {"first fault"}));
  EXPECT_EQ(read_words(words.view()), Words({0})) << "work on data that does not exist";
}

TEST_P(DeviceFaultTest, LeavesWaitersForEarlierWorkAlone) {
  const Tensor words = make_words({0});
  const auto event = make_event();
  ASSERT_TRUE(succeeds(stream_->record(*event)));
  fail_on(*stream_, ErrorCode::kNumeric, "bad value");
  ASSERT_TRUE(succeeds(other_->wait(*event)));
  ASSERT_TRUE(succeeds(other_->stream_write_value32(words.view(), 0, 1)));
  EXPECT_TRUE(succeeds(other_->synchronize(soon())));
  EXPECT_EQ(read_words(words.view()), Words({1}));
  EXPECT_TRUE(fails(stream_->synchronize(soon()), ErrorCode::kNumeric));
}

TEST_P(DeviceFaultTest, OnceToldIsForgottenByOldEvents) {
  // An event recorded behind a fault is waited for again by the next piece of work, after the host was told.
  const Tensor words = make_words({0});
  const auto event = make_event();
  fail_on(*stream_, ErrorCode::kNumeric, "bad value");
  ASSERT_TRUE(succeeds(stream_->record(*event)));
  EXPECT_TRUE(fails(stream_->synchronize(soon()), ErrorCode::kNumeric));
  ASSERT_TRUE(succeeds(other_->wait(*event)));
  ASSERT_TRUE(succeeds(other_->wait(*stream_)));
  ASSERT_TRUE(succeeds(other_->stream_write_value32(words.view(), 0, 1)));
  EXPECT_TRUE(succeeds(other_->synchronize(soon())));
  EXPECT_EQ(read_words(words.view()), Words({1}));
}

TEST_P(DeviceFaultTest, OnceToldIsForgottenByJoinedStreams) {
  // Fork, fault on the side, join: the caller synchronizes its own stream only, and both must work again.
  const Tensor words = make_words({0, 0});
  for (std::uint32_t round = 1; round <= 3; ++round) {
    ASSERT_TRUE(succeeds(other_->wait(*stream_)));
    fail_on(*other_, ErrorCode::kNumeric, "fault on the side");
    ASSERT_TRUE(succeeds(stream_->wait(*other_)));
    ASSERT_TRUE(succeeds(stream_->stream_write_value32(words.view(), 1, 99)));
    EXPECT_TRUE(fails(stream_->synchronize(soon()), ErrorCode::kNumeric, {"fault on the side"}));

    ASSERT_TRUE(succeeds(other_->wait(*stream_)));
    ASSERT_TRUE(succeeds(other_->stream_write_value32(words.view(), 0, round)));
    ASSERT_TRUE(succeeds(stream_->wait(*other_)));
    EXPECT_TRUE(succeeds(stream_->synchronize(soon())));
    EXPECT_EQ(read_words(words.view()), Words({round, 0}));
  }
}

TEST_P(DeviceFaultTest, OnceToldIsForgottenByStreamsThatInheritedIt) {
  // The fault begins on the caller's stream, goes to the side by the fork and comes back by the join.
  const Tensor words = make_words({0});
  fail_on(*stream_, ErrorCode::kNumeric, "fault before the fork");
  ASSERT_TRUE(succeeds(other_->wait(*stream_)));
  ASSERT_TRUE(succeeds(stream_->wait(*other_)));
  EXPECT_TRUE(fails(stream_->synchronize(soon()), ErrorCode::kNumeric, {"fault before the fork"}));
  ASSERT_TRUE(succeeds(other_->stream_write_value32(words.view(), 0, 1)));
  EXPECT_TRUE(succeeds(other_->synchronize(soon())));
  EXPECT_EQ(read_words(words.view()), Words({1}));
}

TEST_P(DeviceFaultTest, StaysWithAStreamThatSkippedMoreThanWasJoined) {
  // The host is told by `stream`, but nobody knows yet that `other` skipped the write behind the join.
  const Tensor words = make_words({0});
  fail_on(*other_, ErrorCode::kNumeric, "bad value");
  ASSERT_TRUE(succeeds(stream_->wait(*other_)));
  ASSERT_TRUE(succeeds(other_->stream_write_value32(words.view(), 0, 1)));
  EXPECT_TRUE(fails(stream_->synchronize(soon()), ErrorCode::kNumeric));
  EXPECT_TRUE(fails(other_->synchronize(soon()), ErrorCode::kNumeric, {"bad value"}));
  EXPECT_EQ(read_words(words.view()), Words({0}));
}

TEST_P(DeviceFaultTest, FirstOneIsKeptWhenAJoinBringsAnother) {
  fail_on(*stream_, ErrorCode::kNumeric, "first fault");
  fail_on(*other_, ErrorCode::kPeerLost, "fault of the other");
  ASSERT_TRUE(succeeds(stream_->wait(*other_)));
  EXPECT_TRUE(fails(stream_->synchronize(soon()), ErrorCode::kNumeric, {"first fault"}));
  EXPECT_TRUE(succeeds(stream_->synchronize(soon())));
  EXPECT_TRUE(succeeds(other_->synchronize(soon()))) << "told together with the first";
}

TEST_P(DeviceFaultTest, JoinsBehindItStillWait) {
  // Otherwise synchronize() would return while `other` still works on the caller's memory.
  const Tensor words = make_words({0});
  fail_on(*stream_, ErrorCode::kNumeric, "bad value");
  const auto gate = hold(*other_);
  ASSERT_TRUE(succeeds(other_->stream_write_value32(words.view(), 0, 1)));
  ASSERT_TRUE(succeeds(stream_->wait(*other_)));
  EXPECT_TRUE(
      fails(stream_->synchronize(Deadline::after(std::chrono::milliseconds(20))), ErrorCode::kTimeout));
  gate->open();
  EXPECT_TRUE(fails(stream_->synchronize(soon()), ErrorCode::kNumeric));
  EXPECT_EQ(read_words(words.view()), Words({1}));
}

TEST_P(DeviceFaultTest, StreamWithAFaultNobodyAskedForGoesQuietly) {
  fail_on(*stream_, ErrorCode::kNumeric, "never told");
  ASSERT_TRUE(succeeds(other_->wait(*stream_)));
  ASSERT_TRUE(succeeds(stream_->wait(*other_)));
  stream_.reset();
  EXPECT_TRUE(fails(other_->synchronize(soon()), ErrorCode::kNumeric, {"never told"}));
}

TANDEM_ON_ALL_DEVICES(DeviceFaultTest);

}  // namespace
}  // namespace tandem::test
