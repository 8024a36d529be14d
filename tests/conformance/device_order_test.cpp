#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "conformance/device_backends.hpp"

// What is done before what: in one stream, between streams, and for the host.

namespace tandem::test {
namespace {

using std::chrono::milliseconds;
using Words = std::vector<std::uint32_t>;

class DeviceOrderTest : public DeviceTest {
 protected:
  [[nodiscard]] ::testing::AssertionResult copies(Stream& stream, const TensorView& words,
                                                  std::int64_t from_idx, std::int64_t to_idx) {
    return succeeds(stream.copy(words.narrow(0, from_idx, 1), words.narrow(0, to_idx, 1)));
  }
};

TEST_P(DeviceOrderTest, ManySmallTasksRunInOrder) {
  // Each copy hands the value on by one word: any two out of order lose it. The first ones wait together;
  // all of them would not fit into a GPU's queue.
  constexpr std::int64_t kNumTasks = 100'000;
  constexpr std::int64_t kNumHeld = 200;
  const Tensor words = make_words(Words(kNumTasks + 1, 0));
  const auto gate = hold(*stream_);
  ASSERT_TRUE(succeeds(stream_->stream_write_value32(words.view(), 0, 7)));
  for (std::int64_t i = 0; i < kNumTasks; ++i) {
    if (i == kNumHeld) gate->open();
    ASSERT_TRUE(copies(*stream_, words.view(), i, i + 1));
  }
  ASSERT_TRUE(succeeds(stream_->synchronize(soon())));
  EXPECT_EQ(read_words(words.view()), Words(kNumTasks + 1, 7));
}

TEST_P(DeviceOrderTest, StreamsDoNotWaitForEachOtherUnasked) {
  const Tensor words = make_words({0});
  const auto gate = hold(*stream_);
  ASSERT_TRUE(succeeds(other_->stream_write_value32(words.view(), 0, 5)));
  ASSERT_TRUE(succeeds(other_->synchronize(soon())));
  EXPECT_EQ(read_words(words.view()), Words({5}));
}

TEST_P(DeviceOrderTest, EventOrdersTwoStreams) {
  const Tensor words = make_words({1, 0, 0});
  const auto event = make_event();
  const auto gate = hold(*stream_);
  ASSERT_TRUE(copies(*stream_, words.view(), 0, 1));
  ASSERT_TRUE(succeeds(stream_->record(*event)));
  ASSERT_TRUE(succeeds(other_->wait(*event)));
  ASSERT_TRUE(copies(*other_, words.view(), 1, 2));
  EXPECT_FALSE(event->is_done());
  gate->open();
  ASSERT_TRUE(succeeds(other_->synchronize(soon())));
  EXPECT_TRUE(event->is_done());
  EXPECT_EQ(read_words(words.view()), Words({1, 1, 1}));
}

TEST_P(DeviceOrderTest, StreamWaitOrdersBothWays) {
  // A fork and a join: stream -> other -> stream.
  const Tensor words = make_words({9, 0, 0, 0});
  const auto gate = hold(*stream_);
  ASSERT_TRUE(copies(*stream_, words.view(), 0, 1));
  ASSERT_TRUE(succeeds(other_->wait(*stream_)));
  ASSERT_TRUE(copies(*other_, words.view(), 1, 2));
  ASSERT_TRUE(succeeds(stream_->wait(*other_)));
  ASSERT_TRUE(copies(*stream_, words.view(), 2, 3));
  gate->open();
  ASSERT_TRUE(succeeds(stream_->synchronize(soon())));
  EXPECT_EQ(read_words(words.view()), Words({9, 9, 9, 9}));
}

TEST_P(DeviceOrderTest, StreamWaitCoversOnlyWhatIsEnqueuedSoFar) {
  const Tensor words = make_words({0});
  ASSERT_TRUE(succeeds(other_->wait(*stream_)));
  const auto gate = hold(*stream_);
  ASSERT_TRUE(succeeds(other_->stream_write_value32(words.view(), 0, 3)));
  ASSERT_TRUE(succeeds(other_->synchronize(soon())));
  EXPECT_EQ(read_words(words.view()), Words({3}));
}

TEST_P(DeviceOrderTest, WaitForItselfIsNoWait) {
  const auto event = make_event();
  ASSERT_TRUE(succeeds(stream_->record(*event)));
  ASSERT_TRUE(succeeds(stream_->wait(*event)));
  ASSERT_TRUE(succeeds(stream_->wait(*stream_)));
  EXPECT_TRUE(succeeds(stream_->synchronize(soon())));
}

TEST_P(DeviceOrderTest, NeverRecordedEventIsDoneAndNoWait) {
  const auto event = make_event();
  EXPECT_TRUE(event->is_done());
  EXPECT_TRUE(succeeds(event->synchronize(soon())));
  ASSERT_TRUE(succeeds(stream_->wait(*event)));
  EXPECT_TRUE(succeeds(stream_->synchronize(soon())));
}

TEST_P(DeviceOrderTest, WaitMeansTheLastRecordBeforeIt) {
  // The later record, which is not reached, must not delay the wait.
  const auto event = make_event();
  ASSERT_TRUE(succeeds(stream_->record(*event)));
  ASSERT_TRUE(succeeds(other_->wait(*event)));
  const auto gate = hold(*stream_);
  ASSERT_TRUE(succeeds(stream_->record(*event)));
  EXPECT_TRUE(succeeds(other_->synchronize(soon())));
  EXPECT_FALSE(event->is_done());
  gate->open();
  EXPECT_TRUE(succeeds(event->synchronize(soon())));
}

TEST_P(DeviceOrderTest, RecordOnAnotherStreamReplacesTheMark) {
  // Each wait keeps the record it saw: `third` waits for the held stream although the event has moved on.
  const Tensor words = make_words({4, 0, 0});
  const auto event = make_event();
  const auto third = make_stream();
  const auto gate = hold(*stream_);
  ASSERT_TRUE(copies(*stream_, words.view(), 0, 1));
  ASSERT_TRUE(succeeds(stream_->record(*event)));
  ASSERT_TRUE(succeeds(third->wait(*event)));
  ASSERT_TRUE(copies(*third, words.view(), 1, 2));
  ASSERT_TRUE(succeeds(other_->record(*event)));
  EXPECT_TRUE(succeeds(event->synchronize(soon())));
  gate->open();
  ASSERT_TRUE(succeeds(third->synchronize(soon())));
  EXPECT_EQ(read_words(words.view()), Words({4, 4, 4}));
}

TEST_P(DeviceOrderTest, RecordedManyTimesByBothStreams) {
  // The streams take turns; a missed wait would let a copy read a word too early.
  constexpr std::int64_t kNumTurns = 500;
  constexpr std::int64_t kNumHeld = 50;  // a GPU's queue is short
  const Tensor words = make_words(Words(2 * kNumTurns + 1, 0));
  const auto ping = make_event();
  const auto pong = make_event();
  const auto gate = hold(*stream_);
  ASSERT_TRUE(succeeds(stream_->stream_write_value32(words.view(), 0, 11)));
  for (std::int64_t i = 0; i < kNumTurns; ++i) {
    if (i == kNumHeld) gate->open();
    ASSERT_TRUE(copies(*stream_, words.view(), 2 * i, 2 * i + 1));
    ASSERT_TRUE(succeeds(stream_->record(*ping)));
    ASSERT_TRUE(succeeds(other_->wait(*ping)));
    ASSERT_TRUE(copies(*other_, words.view(), 2 * i + 1, 2 * i + 2));
    ASSERT_TRUE(succeeds(other_->record(*pong)));
    ASSERT_TRUE(succeeds(stream_->wait(*pong)));
  }
  ASSERT_TRUE(succeeds(stream_->synchronize(soon())));
  EXPECT_EQ(read_words(words.view()), Words(2 * kNumTurns + 1, 11));
}

TEST_P(DeviceOrderTest, ElapsedTimeBetweenMarksCoversTheWork) {
  constexpr milliseconds kSleep(20);
  const auto begin = make_event();
  const auto end = make_event();
  ASSERT_TRUE(succeeds(stream_->record(*begin)));
  ASSERT_TRUE(succeeds(stream_->sleep(kSleep)));
  ASSERT_TRUE(succeeds(stream_->record(*end)));
  ASSERT_TRUE(succeeds(end->synchronize(soon())));
  const auto elapsed_us = end->elapsed_us(*begin);
  ASSERT_TRUE(elapsed_us.has_value()) << elapsed_us.error().to_string();
  EXPECT_GE(*elapsed_us, 19'000.0);  // device clocks tick in steps
  const auto backwards_us = begin->elapsed_us(*end);
  ASSERT_TRUE(backwards_us.has_value());
  EXPECT_LE(*backwards_us, -19'000.0);
}

TEST_P(DeviceOrderTest, SleepOrdersWhatFollowsAndLasts) {
  constexpr milliseconds kSleep(30);
  const Tensor words = make_words({1, 0});
  const auto start = std::chrono::steady_clock::now();
  ASSERT_TRUE(succeeds(stream_->sleep(kSleep)));
  ASSERT_TRUE(succeeds(stream_->stream_write_value32(words.view(), 0, 2)));
  ASSERT_TRUE(succeeds(other_->wait(*stream_)));
  ASSERT_TRUE(copies(*other_, words.view(), 0, 1));
  ASSERT_TRUE(succeeds(other_->synchronize(soon())));
  EXPECT_GE(std::chrono::steady_clock::now() - start, kSleep);
  EXPECT_EQ(read_words(words.view()), Words({2, 2}));
  EXPECT_TRUE(succeeds(stream_->sleep(milliseconds(0))));
}

TEST_P(DeviceOrderTest, SynchronizeStopsAtItsDeadlineAndCanBeRepeated) {
  const auto event = make_event();
  const auto gate = hold(*stream_);
  ASSERT_TRUE(succeeds(stream_->record(*event)));
  EXPECT_TRUE(
      fails(stream_->synchronize(Deadline::after(milliseconds(20))), ErrorCode::kTimeout, {"synchronize"}));
  EXPECT_TRUE(fails(event->synchronize(Deadline::after(milliseconds(20))), ErrorCode::kTimeout, {"event"}));
  gate->open();
  EXPECT_TRUE(succeeds(stream_->synchronize(soon())));
  EXPECT_TRUE(succeeds(event->synchronize(soon())));
}

TEST_P(DeviceOrderTest, SynchronizeWithPassedDeadlineIsAQuery) {
  const auto passed = Deadline::after(milliseconds(0));
  EXPECT_TRUE(succeeds(stream_->synchronize(passed)));
  const auto gate = hold(*stream_);
  EXPECT_TRUE(fails(stream_->synchronize(passed), ErrorCode::kTimeout));
}

TEST_P(DeviceOrderTest, DestroyingAStreamFinishesItsWork) {
  const Tensor words = make_words({0});
  ASSERT_TRUE(succeeds(stream_->sleep(milliseconds(20))));
  ASSERT_TRUE(succeeds(stream_->stream_write_value32(words.view(), 0, 8)));
  stream_.reset();
  EXPECT_EQ(read_words(words.view()), Words({8}));
}

TEST_P(DeviceOrderTest, StreamMayGoWhileOthersWaitForIt) {
  const Tensor words = make_words({0, 0});
  const auto event = make_event();
  ASSERT_TRUE(succeeds(stream_->sleep(milliseconds(20))));
  ASSERT_TRUE(succeeds(stream_->stream_write_value32(words.view(), 0, 6)));
  ASSERT_TRUE(succeeds(stream_->record(*event)));
  ASSERT_TRUE(succeeds(other_->wait(*stream_)));
  ASSERT_TRUE(copies(*other_, words.view(), 0, 1));
  stream_.reset();
  EXPECT_TRUE(event->is_done());
  EXPECT_TRUE(succeeds(event->synchronize(soon())));
  ASSERT_TRUE(succeeds(other_->synchronize(soon())));
  EXPECT_EQ(read_words(words.view()), Words({6, 6}));
}

TEST_P(DeviceOrderTest, EventMayGoWhileItsMarkIsEnqueued) {
  const Tensor words = make_words({5, 0});
  auto event = make_event();
  const auto gate = hold(*stream_);
  ASSERT_TRUE(succeeds(stream_->record(*event)));
  ASSERT_TRUE(succeeds(other_->wait(*event)));
  ASSERT_TRUE(copies(*other_, words.view(), 0, 1));
  event.reset();
  gate->open();
  EXPECT_TRUE(succeeds(other_->synchronize(soon())));
  EXPECT_EQ(read_words(words.view()), Words({5, 5}));
}

TEST_P(DeviceOrderTest, PrioritiesAreKeptAndRunTheSame) {
  for (const int priority : {-5, 0, 3}) {
    const auto stream = make_stream(priority);
    const Tensor words = make_words({0});
    EXPECT_EQ(stream->priority(), priority);
    EXPECT_EQ(&stream->device(), device_.get());
    EXPECT_FALSE(stream->is_capturing());
    ASSERT_TRUE(succeeds(stream->stream_write_value32(words.view(), 0, 1)));
    ASSERT_TRUE(succeeds(stream->synchronize(soon())));
    EXPECT_EQ(read_words(words.view()), Words({1}));
  }
}

TANDEM_ON_ALL_DEVICES(DeviceOrderTest);

}  // namespace
}  // namespace tandem::test
