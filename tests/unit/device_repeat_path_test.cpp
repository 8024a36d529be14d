#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <memory>
#include <tandem/cpu/launch.hpp>
#include <tandem/device/device.hpp>

#include "device/cpu/cpu_device.hpp"
#include "support/allocation_count.hpp"

// Enqueueing allocates nothing once a stream's ring is as long as the work needs.

namespace tandem::cpu {
namespace {

using test::num_allocations;

class RepeatPath : public ::testing::Test {
 protected:
  RepeatPath()
      : device_(make_device(0, Config{}).value()),
        stream_(device_->create_stream().value()),
        other_(device_->create_stream().value()),
        side_(device_->create_stream().value()),
        event_(device_->create_event().value()) {}

  /// Everything a stream can be asked for, the way a fused op asks for it.
  [[nodiscard]] bool enqueue_round() {
    const TensorView rows = TensorView::contiguous(words_.data(), {8, 8}, DType::kU32);
    const TensorView words = TensorView::contiguous(words_.data(), {64}, DType::kU32);
    const std::array<std::int64_t, 50> payload = {1};  // 400 bytes: near what a task can hold
    std::int64_t* const sum = &sum_;
    bool ok = stream_->copy(rows.narrow(1, 0, 2), rows.narrow(1, 4, 2)).has_value();
    ok = ok && stream_->stream_write_value32(words, 3, 1).has_value();
    ok = ok && stream_->memset32(words, 4, 1, 8).has_value();
    ok = ok && stream_->sleep(std::chrono::nanoseconds(0)).has_value();
    ok = ok && stream_->record(*event_).has_value();
    ok = ok && other_->wait(*event_).has_value();
    ok = ok && launch(*other_, Task([payload, sum]() -> Result<void> {
                 *sum += payload[0];
                 return {};
               })).has_value();
    ok = ok && stream_->wait(*other_).has_value();
    return ok && side_->wait(*stream_).has_value();
  }
  [[nodiscard]] bool synchronize() {
    return stream_->synchronize().has_value() && other_->synchronize().has_value() &&
           side_->synchronize().has_value();
  }

  std::array<std::uint32_t, 64> words_ = {};
  std::int64_t sum_ = 0;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<Stream> other_;
  std::unique_ptr<Stream> side_;
  std::unique_ptr<Event> event_;
};

TEST_F(RepeatPath, AllocatesNothing) {
  constexpr std::int64_t kRounds = 200;
  for (std::int64_t i = 0; i < kRounds; ++i) ASSERT_TRUE(enqueue_round());
  ASSERT_TRUE(synchronize());
  // A first round that ran as fast as it was enqueued may have left a ring short: give it the length it can
  // need.
  const std::int64_t before_growth = num_allocations();
  for (Stream* stream : {stream_.get(), other_.get(), side_.get()}) {
    ASSERT_TRUE(stream->sleep(std::chrono::milliseconds(20)).has_value());
    for (std::int64_t i = 0; i < 8 * kRounds; ++i) {
      ASSERT_TRUE(launch(*stream, Task([]() -> Result<void> { return {}; })).has_value());
    }
  }
  ASSERT_TRUE(synchronize());
  EXPECT_GT(num_allocations(), before_growth) << "the counter does not see the rings grow";

  const std::int64_t before = num_allocations();
  bool ok = true;
  for (std::int64_t i = 0; i < kRounds; ++i) ok = ok && enqueue_round();
  ok = ok && synchronize();
  EXPECT_EQ(num_allocations() - before, 0);
  EXPECT_TRUE(ok);
  EXPECT_EQ(sum_, 2 * kRounds);
}

}  // namespace
}  // namespace tandem::cpu
