#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <tandem/cpu/launch.hpp>
#include <tandem/device/device.hpp>
#include <thread>
#include <vector>

#include "device/cpu/cpu_device.hpp"

// For the thread sanitizer: tasks share plain, non-atomic memory, so that an edge that a join, an event or a
// synchronize() fails to give is a reported race. Without the sanitizer wrong sums show most of them.

namespace tandem::cpu {
namespace {

class DeviceStreams : public ::testing::Test {
 protected:
  DeviceStreams() : device_(make_device(0, quiet()).value()) {}
  static Config quiet() {
    Config config;
    config.log_level = LogLevel::kOff;
    return config;
  }
  [[nodiscard]] std::unique_ptr<Stream> make_stream() { return device_->create_stream().value(); }
  [[nodiscard]] static bool add(Stream& stream, std::int64_t* sum, std::int64_t value) {
    return launch(stream, Task([sum, value]() -> Result<void> {
                    *sum += value;
                    return {};
                  }))
        .has_value();
  }
  [[nodiscard]] static bool fault(Stream& stream) {
    return launch(stream, Task([]() -> Result<void> { return fail(ErrorCode::kNumeric, "bad value"); }))
        .has_value();
  }

  std::unique_ptr<Device> device_;
};

TEST_F(DeviceStreams, PingPongThroughEvents) {
  constexpr std::int64_t kTurns = 2000;
  const auto stream = make_stream();
  const auto other = make_stream();
  const auto ping = device_->create_event().value();
  const auto pong = device_->create_event().value();
  std::int64_t sum = 0;
  for (std::int64_t i = 0; i < kTurns; ++i) {
    ASSERT_TRUE(add(*stream, &sum, 1));
    ASSERT_TRUE(stream->record(*ping).has_value());
    ASSERT_TRUE(other->wait(*ping).has_value());
    ASSERT_TRUE(add(*other, &sum, 1000));
    ASSERT_TRUE(other->record(*pong).has_value());
    ASSERT_TRUE(stream->wait(*pong).has_value());
  }
  ASSERT_TRUE(stream->synchronize().has_value());
  EXPECT_EQ(sum, kTurns * 1001);
}

TEST_F(DeviceStreams, ForkAndJoinThroughStreamWaits) {
  constexpr std::int64_t kTurns = 2000;
  const auto stream = make_stream();
  const auto side = make_stream();
  std::int64_t sum = 0;
  for (std::int64_t i = 0; i < kTurns; ++i) {
    ASSERT_TRUE(add(*stream, &sum, 1));
    ASSERT_TRUE(side->wait(*stream).has_value());
    ASSERT_TRUE(add(*side, &sum, 1000));
    ASSERT_TRUE(stream->wait(*side).has_value());
  }
  ASSERT_TRUE(stream->synchronize().has_value());
  EXPECT_EQ(sum, kTurns * 1001);
}

TEST_F(DeviceStreams, HostSeesWorkAfterEverySynchronize) {
  const auto stream = make_stream();
  const auto event = device_->create_event().value();
  std::int64_t sum = 0;
  for (std::int64_t i = 1; i <= 500; ++i) {
    ASSERT_TRUE(add(*stream, &sum, 1));
    ASSERT_TRUE(stream->synchronize().has_value());
    ASSERT_EQ(sum, 2 * i - 1);
    ASSERT_TRUE(add(*stream, &sum, 1));
    ASSERT_TRUE(stream->record(*event).has_value());
    if (i % 2 == 0) {
      ASSERT_TRUE(event->synchronize(Deadline::never()).has_value());
    } else {
      while (!event->is_done()) std::this_thread::yield();
    }
    ASSERT_EQ(sum, 2 * i);
  }
}

TEST_F(DeviceStreams, SettledJoinsStillOrder) {
  // The other stream is done before the wait is enqueued: the edge goes through the enqueueing thread.
  const auto stream = make_stream();
  const auto other = make_stream();
  const auto event = device_->create_event().value();
  std::int64_t sum = 0;
  for (std::int64_t i = 1; i <= 500; ++i) {
    ASSERT_TRUE(add(*other, &sum, 1));
    ASSERT_TRUE(other->record(*event).has_value());
    while (!event->is_done()) std::this_thread::yield();
    ASSERT_TRUE(stream->wait(*event).has_value());
    ASSERT_TRUE(add(*stream, &sum, 1));
    ASSERT_TRUE(stream->synchronize().has_value());
    ASSERT_EQ(sum, 2 * i);
  }
}

TEST_F(DeviceStreams, FaultsThatRunRoundInACircleAreToldAndForgotten) {
  // Both streams fail at the same time and inherit from each other while two hosts synchronize.
  for (int round = 0; round < 200; ++round) {
    const auto stream = make_stream();
    const auto other = make_stream();
    std::int64_t sum = 0;
    ASSERT_TRUE(fault(*stream));
    ASSERT_TRUE(fault(*other));
    ASSERT_TRUE(stream->wait(*other).has_value());
    ASSERT_TRUE(other->wait(*stream).has_value());
    ASSERT_TRUE(add(*stream, &sum, 1));
    ASSERT_TRUE(add(*other, &sum, 1));
    bool other_told = false;
    std::thread host([&] { other_told = !other->synchronize().has_value(); });
    const bool stream_told = !stream->synchronize().has_value();
    host.join();
    ASSERT_TRUE(stream_told) << "round " << round;
    ASSERT_TRUE(other_told) << "round " << round;
    ASSERT_EQ(sum, 0);
    ASSERT_TRUE(stream->wait(*other).has_value());
    ASSERT_TRUE(add(*stream, &sum, 1));
    ASSERT_TRUE(stream->synchronize().has_value()) << "round " << round;
    ASSERT_EQ(sum, 1);
  }
}

TEST_F(DeviceStreams, DestroyedWhileOthersWait) {
  for (int round = 0; round < 100; ++round) {
    std::int64_t sum = 0;
    auto source = make_stream();
    auto event = device_->create_event().value();
    std::vector<std::unique_ptr<Stream>> waiters;
    for (int i = 0; i < 3; ++i) waiters.push_back(make_stream());
    ASSERT_TRUE(source->sleep(std::chrono::microseconds(200)).has_value());
    ASSERT_TRUE(add(*source, &sum, 5));
    ASSERT_TRUE(source->record(*event).has_value());
    for (const auto& waiter : waiters) ASSERT_TRUE(waiter->wait(*event).has_value());
    std::atomic<int> num_seen{0};
    for (const auto& waiter : waiters) {
      ASSERT_TRUE(launch(*waiter, Task([&sum, &num_seen]() -> Result<void> {
                    num_seen += sum == 5 ? 1 : 0;
                    return {};
                  })).has_value());
    }
    event.reset();
    source.reset();
    waiters.clear();
    ASSERT_EQ(num_seen, 3) << "round " << round;
  }
}

TEST_F(DeviceStreams, DestroyedWhileItsFaultIsHandedRound) {
  for (int round = 0; round < 100; ++round) {
    auto stream = make_stream();
    auto other = make_stream();
    ASSERT_TRUE(fault(*stream));
    ASSERT_TRUE(other->wait(*stream).has_value());
    ASSERT_TRUE(stream->wait(*other).has_value());
    std::thread host([&] { (void)other->synchronize().has_value(); });
    stream.reset();
    host.join();
  }
}

TEST_F(DeviceStreams, OneEventSharedByRecordersAndWaiters) {
  const auto stream = make_stream();
  const auto other = make_stream();
  const auto event = device_->create_event().value();
  std::atomic<bool> stop{false};
  std::thread watcher([&] {
    while (!stop) {
      (void)event->is_done();
      (void)event->synchronize(Deadline::never()).has_value();
      (void)event->elapsed_us(*event).has_value();
    }
  });
  std::int64_t sum = 0;
  for (int i = 0; i < 1000; ++i) {
    ASSERT_TRUE(add(*stream, &sum, 1));
    ASSERT_TRUE(stream->record(*event).has_value());
    ASSERT_TRUE(other->wait(*event).has_value());
  }
  ASSERT_TRUE(add(*other, &sum, 1000));
  ASSERT_TRUE(other->synchronize().has_value());
  stop = true;
  watcher.join();
  EXPECT_EQ(sum, 2000);
}

}  // namespace
}  // namespace tandem::cpu
