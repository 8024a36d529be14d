// What a product notes of its waits: a chunk that comes late, and none for what is there.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "conformance/device_backends.hpp"
#include "device/stamps.hpp"
#include "gemm/product.hpp"

namespace tandem::test {
namespace {

using std::chrono::milliseconds;

class GemmChunkWaits : public DeviceTest {
 protected:
  static constexpr std::int64_t kRows = 256;  ///< of a chunk
  static constexpr std::int64_t kSide = 128;
  static constexpr std::int64_t kChunks = 3;
  static constexpr std::int32_t kTag = 41;

  void SetUp() override {
    DeviceTest::SetUp();
    if (!device_) return;
    const bool can_run =
        gemm::can_run(
            gemm::AsyncInputProblem{.m = kChunks * kRows, .n = kSide, .k = kSide, .chunks = kChunks},
            *device_)
            .ok;
    if (!can_run) GTEST_SKIP() << "no product here consumes chunks that arrive";
    auto stamps = device_->service<StampService>()->create(*device_, 16);
    ASSERT_TRUE(stamps.has_value()) << stamps.error().to_string();
    stamps_ = *std::move(stamps);
    a_ = make({kChunks * kRows, kSide}, DType::kBF16);
    b_ = make({kSide, kSide}, DType::kBF16);
    out_ = make({kChunks * kRows, kSide}, DType::kBF16);
  }
  void TearDown() override {
    stamps_.reset();
    DeviceTest::TearDown();
  }
  Tensor make(const Dims& sizes, DType dtype) {
    auto tensor = device_->allocate_tensor(sizes, dtype);
    EXPECT_TRUE(tensor.has_value());
    return tensor ? *std::move(tensor) : Tensor();
  }
  /// The product of three chunks with these signals.
  Result<void> multiply(const Tensor& signals, const ChunkWaitLog* log) {
    const TensorView a = a_.view();
    const TensorView b = b_.view().movedim(0, 1);
    const TensorView out = out_.view();
    const gemm::Arrival arrival{.signals = signals.view()};
    const gemm::ProductArgs args{.a = &a, .b = &b, .out = &out, .arrival = &arrival, .chunk_waits = log};
    return gemm::run(args, *stream_);
  }
  StampedTimes read() {
    EXPECT_TRUE(succeeds(stream_->synchronize(soon())));
    EXPECT_TRUE(succeeds(other_->synchronize(soon())));
    auto times = stamps_->read();
    EXPECT_TRUE(times.has_value()) << (times ? "" : times.error().to_string());
    return times ? *std::move(times) : StampedTimes();
  }

  std::unique_ptr<Stamps> stamps_;
  Tensor a_, b_, out_;
};

/// By then a product that was enqueued before waits, on a busy machine too: what holds it up is the signal.
constexpr milliseconds kBehindTheBegin{300};

TEST_P(GemmChunkWaits, ALateChunkIsNotedFromItsFirstLookToItsSignal) {
  const Tensor signals = make_words({1, 1, 0});
  const ChunkWaitLog log = stamps_->chunk_waits(kTag);
  ASSERT_TRUE(succeeds(stamps_->take(*stream_, 0)));
  ASSERT_TRUE(succeeds(multiply(signals, &log)));
  ASSERT_TRUE(succeeds(stamps_->take(*stream_, 1)));
  ASSERT_TRUE(succeeds(other_->sleep(kBehindTheBegin)));
  ASSERT_TRUE(succeeds(stamps_->take(*other_, 2)));
  ASSERT_TRUE(succeeds(other_->stream_write_value32(signals.view(), 2, 1)));
  const StampedTimes times = read();
  ASSERT_FALSE(times.chunk_waits.empty());
  EXPECT_EQ(times.num_lost_chunk_waits, 0);
  const std::int64_t slack_ns = stamps_->uncertainty_ns();
  std::int64_t latest_ns = 0;
  for (const ChunkWait& wait : times.chunk_waits) {
    EXPECT_EQ(wait.chunk, 2);
    EXPECT_EQ(wait.tag, kTag);
    EXPECT_LT(wait.begin, wait.end);
    EXPECT_GE(wait.begin, times.at[0] - slack_ns);
    EXPECT_LE(wait.end, times.at[1] + slack_ns);
    latest_ns = std::max(latest_ns, wait.end);
  }
  EXPECT_GE(latest_ns, times.at[2] - slack_ns) << "the wait ends behind the signal";
}

TEST_P(GemmChunkWaits, NothingIsNotedOfChunksThatAreThere) {
  const Tensor signals = make_words({1, 1, 1});
  const ChunkWaitLog log = stamps_->chunk_waits(kTag);
  ASSERT_TRUE(succeeds(multiply(signals, &log)));
  EXPECT_TRUE(read().chunk_waits.empty());
}

TEST_P(GemmChunkWaits, NothingIsNotedWithoutALog) {
  const Tensor signals = make_words({1, 0, 1});
  ASSERT_TRUE(succeeds(multiply(signals, nullptr)));
  ASSERT_TRUE(succeeds(other_->sleep(milliseconds(5))));
  ASSERT_TRUE(succeeds(other_->stream_write_value32(signals.view(), 1, 1)));
  EXPECT_TRUE(read().chunk_waits.empty());
}

TEST_P(GemmChunkWaits, WhatTheLogHasNoRoomForIsCounted) {
  const Tensor signals = make_words({1, 1, 0});
  ChunkWaitLog log = stamps_->chunk_waits(kTag);
  log.capacity = 0;
  ASSERT_TRUE(succeeds(multiply(signals, &log)));
  ASSERT_TRUE(succeeds(other_->sleep(kBehindTheBegin)));
  ASSERT_TRUE(succeeds(other_->stream_write_value32(signals.view(), 2, 1)));
  ASSERT_TRUE(succeeds(stream_->synchronize(soon())));
  const Tensor count = make({1}, DType::kU32);
  ASSERT_TRUE(succeeds(
      stream_->copy(TensorView::contiguous(log.count, {1}, DType::kU32, device_->id()), count.view())));
  ASSERT_TRUE(succeeds(stream_->synchronize(soon())));
  EXPECT_GT(read_words(count.view())[0], 0U);
}

TANDEM_ON_ALL_DEVICES(GemmChunkWaits);

}  // namespace
}  // namespace tandem::test
