#include <chrono>
#include <cstdint>
#include <utility>
#include <vector>

#include "conformance/device_backends.hpp"

// Recording work of streams and running it again. A backend without graphs says so; then the rest is skipped.

namespace tandem::test {
namespace {

using std::chrono::milliseconds;
using Words = std::vector<std::uint32_t>;
constexpr auto kInvalid = ErrorCode::kInvalidArgument;

template <class T>
::testing::AssertionResult refuses(const Result<T>& result, ErrorCode code,
                                   const std::vector<std::string>& fragments) {
  if (result) return ::testing::AssertionFailure() << "succeeded, expected " << to_string(code);
  return fails(tl::unexpected(result.error()), code, fragments);
}

class DeviceGraphTest : public DeviceTest {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    if (!device_) return;
    if (device_->id().kind == DeviceKind::kCpu) {
      const auto unsupported = ErrorCode::kUnsupported;
      EXPECT_TRUE(fails(stream_->begin_capture(), unsupported, {"begin_capture", "cpu:0 has no graphs"}));
      EXPECT_TRUE(refuses(stream_->end_capture(), unsupported, {"end_capture", "cpu:0 has no graphs"}));
      EXPECT_FALSE(stream_->is_capturing());
      GTEST_SKIP() << "this backend has no graphs";
    }
  }

  [[nodiscard]] ::testing::AssertionResult copies(Stream& stream, const TensorView& words,
                                                  std::int64_t from_idx, std::int64_t to_idx) {
    return succeeds(stream.copy(words.narrow(0, from_idx, 1), words.narrow(0, to_idx, 1)));
  }
  [[nodiscard]] static std::unique_ptr<Graph> end_capture(Stream& stream) {
    auto graph = stream.end_capture();
    EXPECT_TRUE(graph.has_value()) << (graph ? "" : graph.error().to_string());
    return graph ? std::move(*graph) : nullptr;
  }
};

TEST_P(DeviceGraphTest, RecordsWithoutRunningAndRunsWhenLaunched) {
  const Tensor words = make_words({1, 0, 0});
  ASSERT_TRUE(succeeds(stream_->begin_capture()));
  EXPECT_TRUE(stream_->is_capturing());
  EXPECT_FALSE(other_->is_capturing());
  ASSERT_TRUE(copies(*stream_, words.view(), 0, 1));
  ASSERT_TRUE(copies(*stream_, words.view(), 1, 2));
  const auto graph = end_capture(*stream_);
  ASSERT_NE(graph, nullptr);
  EXPECT_FALSE(stream_->is_capturing());
  ASSERT_TRUE(succeeds(stream_->synchronize(soon())));
  EXPECT_EQ(read_words(words.view()), Words({1, 0, 0})) << "recorded work ran";
  ASSERT_TRUE(succeeds(graph->launch(*stream_)));
  ASSERT_TRUE(succeeds(stream_->synchronize(soon())));
  EXPECT_EQ(read_words(words.view()), Words({1, 1, 1}));
}

TEST_P(DeviceGraphTest, RecordsEveryKindOfWork) {
  constexpr std::int64_t kRows = 8;
  constexpr std::int64_t kColumns = 32;
  const Tensor words = make_words(Words(kRows * kColumns, 1));
  const TensorView matrix =
      TensorView::contiguous(words.view().data, {kRows, kColumns}, DType::kU32, device_->id());
  const TensorView row = matrix.select(0, 0).narrow(0, 1, kRows - 1);
  const TensorView column = matrix.select(1, 0).narrow(0, 1, kRows - 1);
  ASSERT_TRUE(succeeds(stream_->begin_capture()));
  ASSERT_TRUE(succeeds(stream_->memset32(words.view(), 0, 0, kRows * kColumns)));
  ASSERT_TRUE(succeeds(stream_->memset32(words.view(), 0, 3, 8)));
  ASSERT_TRUE(succeeds(stream_->stream_write_value32(words.view(), 1, 4)));
  ASSERT_TRUE(succeeds(stream_->sleep(milliseconds(1))));
  ASSERT_TRUE(succeeds(stream_->copy(row, column)));
  ASSERT_TRUE(succeeds(stream_->copy(matrix.narrow(1, 0, 8), matrix.narrow(1, 16, 8))));  // as rows
  const auto graph = end_capture(*stream_);
  ASSERT_NE(graph, nullptr);
  EXPECT_EQ(read_words(words.view()), Words(kRows * kColumns, 1));
  Words expected(kRows * kColumns, 0);
  for (std::size_t i = 0; i < 8; ++i) expected[i] = i == 1 ? 4 : 3;
  for (std::size_t i = 1; i < kRows; ++i) expected[i * kColumns] = expected[i];
  for (std::size_t i = 0; i < kRows; ++i) {
    for (std::size_t j = 0; j < 8; ++j) expected[i * kColumns + 16 + j] = expected[i * kColumns + j];
  }
  for (int round = 0; round < 2; ++round) {
    ASSERT_TRUE(succeeds(stream_->memset32(words.view(), 0, 9, kRows * kColumns)));
    ASSERT_TRUE(succeeds(graph->launch(*stream_)));
    ASSERT_TRUE(succeeds(stream_->synchronize(soon())));
    EXPECT_EQ(read_words(words.view()), expected) << "round " << round;
  }
}

TEST_P(DeviceGraphTest, StreamsJoinByWaitingForAStream) {
  const Tensor words = make_words({9, 0, 0, 0});
  ASSERT_TRUE(succeeds(stream_->begin_capture()));
  ASSERT_TRUE(copies(*stream_, words.view(), 0, 1));
  ASSERT_TRUE(succeeds(other_->wait(*stream_)));
  EXPECT_TRUE(other_->is_capturing());
  EXPECT_TRUE(refuses(other_->end_capture(), kInvalid, {"end_capture", "joined"}));
  ASSERT_TRUE(succeeds(other_->sleep(milliseconds(5))));
  ASSERT_TRUE(copies(*other_, words.view(), 1, 2));
  ASSERT_TRUE(succeeds(stream_->wait(*other_)));
  ASSERT_TRUE(copies(*stream_, words.view(), 2, 3));
  const auto graph = end_capture(*stream_);
  ASSERT_NE(graph, nullptr);
  EXPECT_FALSE(other_->is_capturing());
  for (const std::uint32_t value : {9U, 10U}) {
    ASSERT_TRUE(succeeds(stream_->memset32(words.view(), 0, value)));
    ASSERT_TRUE(succeeds(graph->launch(*stream_)));
    ASSERT_TRUE(succeeds(stream_->synchronize(soon())));
    EXPECT_EQ(read_words(words.view()), Words(4, value));
  }
}

TEST_P(DeviceGraphTest, StreamsJoinByWaitingForAnEvent) {
  const Tensor words = make_words({7, 0, 0, 0});
  const auto fork = make_event();
  const auto join = make_event();
  const auto never = make_event();
  ASSERT_TRUE(succeeds(stream_->record(*join))) << "a mark from before the recording is replaced";
  ASSERT_TRUE(succeeds(stream_->begin_capture()));
  ASSERT_TRUE(succeeds(stream_->wait(*never)));
  ASSERT_TRUE(copies(*stream_, words.view(), 0, 1));
  ASSERT_TRUE(succeeds(stream_->record(*fork)));
  ASSERT_TRUE(succeeds(other_->wait(*fork)));
  ASSERT_TRUE(succeeds(other_->sleep(milliseconds(5))));
  ASSERT_TRUE(copies(*other_, words.view(), 1, 2));
  ASSERT_TRUE(succeeds(other_->record(*join)));
  ASSERT_TRUE(succeeds(stream_->wait(*join)));
  ASSERT_TRUE(copies(*stream_, words.view(), 2, 3));
  EXPECT_TRUE(join->is_done()) << "the host has nothing to wait for";
  EXPECT_TRUE(succeeds(join->synchronize(soon())));
  EXPECT_TRUE(refuses(join->elapsed_us(*fork), kInvalid, {"elapsed_us", "graph"}));
  const auto graph = end_capture(*stream_);
  ASSERT_NE(graph, nullptr);
  ASSERT_TRUE(succeeds(graph->launch(*stream_)));
  ASSERT_TRUE(succeeds(stream_->record(*join))) << "and is an ordinary event again";
  ASSERT_TRUE(succeeds(join->synchronize(soon())));
  EXPECT_EQ(read_words(words.view()), Words(4, 7));
}

TEST_P(DeviceGraphTest, ReplaysKeepTheirPlaceAmongEagerWork) {
  const Tensor words = make_words({0, 0, 0});
  ASSERT_TRUE(succeeds(stream_->begin_capture()));
  ASSERT_TRUE(copies(*stream_, words.view(), 0, 1));
  const auto graph = end_capture(*stream_);
  ASSERT_NE(graph, nullptr);
  const Tensor seen = make_words(Words(50, 0));
  Words expected;
  for (std::uint32_t round = 0; round < 50; ++round) {
    ASSERT_TRUE(succeeds(stream_->stream_write_value32(words.view(), 0, round)));
    ASSERT_TRUE(succeeds(graph->launch(*stream_)));
    ASSERT_TRUE(copies(*stream_, words.view(), 1, 2));
    ASSERT_TRUE(succeeds(stream_->copy(words.view().narrow(0, 2, 1), seen.view().narrow(0, round, 1))));
    expected.push_back(round);
  }
  ASSERT_TRUE(succeeds(stream_->synchronize(soon())));
  EXPECT_EQ(read_words(seen.view()), expected);
}

TEST_P(DeviceGraphTest, AThousandReplays) {
  // Each replay moves all words on by one place: a replay lost or run twice at a time shows in their number.
  constexpr std::int64_t kNumReplays = 1000;
  const Tensor words = make_words(Words(kNumReplays + 2, 0));
  const Tensor moved = make_words(Words(kNumReplays + 2, 0));
  ASSERT_TRUE(succeeds(stream_->stream_write_value32(words.view(), 0, 5)));
  ASSERT_TRUE(succeeds(stream_->begin_capture()));
  ASSERT_TRUE(succeeds(stream_->copy(words.view(), moved.view())));
  ASSERT_TRUE(succeeds(other_->wait(*stream_)));
  ASSERT_TRUE(succeeds(
      other_->copy(moved.view().narrow(0, 0, kNumReplays + 1), words.view().narrow(0, 1, kNumReplays + 1))));
  ASSERT_TRUE(succeeds(stream_->wait(*other_)));
  const auto graph = end_capture(*stream_);
  ASSERT_NE(graph, nullptr);
  for (std::int64_t i = 0; i < kNumReplays; ++i) ASSERT_TRUE(succeeds(graph->launch(*stream_)));
  ASSERT_TRUE(succeeds(stream_->synchronize(soon())));
  Words expected(kNumReplays + 2, 5);
  expected.back() = 0;
  EXPECT_EQ(read_words(words.view()), expected);
}

TEST_P(DeviceGraphTest, LaunchesOnAnyStreamBehindItsWork) {
  const Tensor words = make_words({0, 0});
  ASSERT_TRUE(succeeds(stream_->begin_capture()));
  ASSERT_TRUE(copies(*stream_, words.view(), 0, 1));
  const auto graph = end_capture(*stream_);
  ASSERT_NE(graph, nullptr);
  stream_.reset();  // what was recorded on it lives on
  const auto gate = hold(*other_);
  ASSERT_TRUE(succeeds(other_->stream_write_value32(words.view(), 0, 6)));
  ASSERT_TRUE(succeeds(graph->launch(*other_)));
  EXPECT_TRUE(fails(other_->synchronize(Deadline::after(milliseconds(10))), ErrorCode::kTimeout));
  gate->open();
  ASSERT_TRUE(succeeds(other_->synchronize(soon())));
  EXPECT_EQ(read_words(words.view()), Words({6, 6}));
}

TEST_P(DeviceGraphTest, MayGoWhileItRuns) {
  const Tensor words = make_words({3, 0});
  ASSERT_TRUE(succeeds(stream_->begin_capture()));
  ASSERT_TRUE(succeeds(stream_->sleep(milliseconds(20))));
  ASSERT_TRUE(copies(*stream_, words.view(), 0, 1));
  auto graph = end_capture(*stream_);
  ASSERT_NE(graph, nullptr);
  ASSERT_TRUE(succeeds(graph->launch(*stream_)));
  graph.reset();
  ASSERT_TRUE(succeeds(stream_->synchronize(soon())));
  EXPECT_EQ(read_words(words.view()), Words({3, 3}));
}

TEST_P(DeviceGraphTest, EmptyRecordingIsAGraphThatDoesNothing) {
  ASSERT_TRUE(succeeds(stream_->begin_capture()));
  const auto graph = end_capture(*stream_);
  ASSERT_NE(graph, nullptr);
  EXPECT_TRUE(succeeds(graph->launch(*stream_)));
  EXPECT_TRUE(succeeds(stream_->synchronize(soon())));
}

TEST_P(DeviceGraphTest, RefusesWhatMakesNoSense) {
  const Tensor words = make_words({2, 0});
  EXPECT_TRUE(refuses(stream_->end_capture(), kInvalid, {"end_capture", "not recording"}));
  ASSERT_TRUE(succeeds(stream_->begin_capture()));
  EXPECT_TRUE(fails(stream_->begin_capture(), kInvalid, {"begin_capture", "recording already"}));
  EXPECT_TRUE(fails(stream_->synchronize(soon()), kInvalid, {"synchronize", "recording"}));
  ASSERT_TRUE(copies(*stream_, words.view(), 0, 1));
  const auto graph = end_capture(*stream_);
  ASSERT_NE(graph, nullptr) << "a refused call broke the recording";
  EXPECT_TRUE(refuses(stream_->end_capture(), kInvalid, {"end_capture", "not recording"}));
  ASSERT_TRUE(succeeds(graph->launch(*stream_)));
  ASSERT_TRUE(succeeds(stream_->synchronize(soon())));
  EXPECT_EQ(read_words(words.view()), Words({2, 2}));
}

TEST_P(DeviceGraphTest, StreamThatWasNotJoinedBackBreaksTheRecordingOnly) {
  const Tensor words = make_words({8, 0, 0});
  ASSERT_TRUE(succeeds(stream_->begin_capture()));
  ASSERT_TRUE(succeeds(other_->wait(*stream_)));
  ASSERT_TRUE(copies(*other_, words.view(), 0, 1));
  EXPECT_TRUE(refuses(stream_->end_capture(), ErrorCode::kDriver, {"end_capture"}));
  EXPECT_FALSE(stream_->is_capturing());
  EXPECT_FALSE(other_->is_capturing());
  ASSERT_TRUE(copies(*stream_, words.view(), 0, 2));
  ASSERT_TRUE(succeeds(stream_->synchronize(soon())));
  EXPECT_TRUE(succeeds(other_->synchronize(soon())));
  EXPECT_EQ(read_words(words.view()), Words({8, 0, 8}));
}

TEST_P(DeviceGraphTest, StreamMayGoWhileItRecords) {
  ASSERT_TRUE(succeeds(stream_->begin_capture()));
  ASSERT_TRUE(succeeds(stream_->sleep(milliseconds(1))));
  stream_.reset();
  EXPECT_TRUE(succeeds(other_->synchronize(soon())));
}

TEST_P(DeviceGraphTest, OtherStreamsAndHostCopiesWorkWhileOneRecords) {
  const Tensor words = make_words({4, 0, 0});
  const Tensor more = make_words({1, 2, 3});
  ASSERT_TRUE(succeeds(stream_->begin_capture()));
  ASSERT_TRUE(copies(*stream_, words.view(), 1, 2));
  ASSERT_TRUE(copies(*other_, words.view(), 0, 1));
  ASSERT_TRUE(succeeds(other_->synchronize(soon())));
  EXPECT_EQ(read_words(more.view()), Words({1, 2, 3}));
  EXPECT_EQ(read_words(words.view()), Words({4, 4, 0}));
  const auto graph = end_capture(*stream_);
  ASSERT_NE(graph, nullptr);
  ASSERT_TRUE(succeeds(graph->launch(*other_)));
  ASSERT_TRUE(succeeds(other_->synchronize(soon())));
  EXPECT_EQ(read_words(words.view()), Words({4, 4, 4}));
}

TANDEM_ON_ALL_DEVICES(DeviceGraphTest);

}  // namespace
}  // namespace tandem::test
