#include <gtest/gtest.h>

#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <tandem/backend/backend.hpp>
#include <tandem/cpu/launch.hpp>

#include "conformance/device_backends.hpp"

// Errors that only a CPU device can meet.

namespace tandem::test {
namespace {

class DeviceCpuTest : public ::testing::Test {
 protected:
  void SetUp() override {
    Config config;
    config.log_level = LogLevel::kOff;
    auto device = open_device({DeviceKind::kCpu, 0}, config);
    ASSERT_TRUE(device.has_value()) << device.error().to_string();
    device_ = std::move(*device);
    stream_ = device_->create_stream().value();
  }
  template <class F>
  void launch(F&& f) {
    ASSERT_TRUE(succeeds(cpu::launch(*stream_, cpu::Task(std::forward<F>(f)))));
  }

  std::unique_ptr<Device> device_;
  std::unique_ptr<Stream> stream_;
};

TEST_F(DeviceCpuTest, ExceptionOfATaskIsAnErrorOfTheStream) {
  launch([]() -> Result<void> { throw std::runtime_error("thrown by a task"); });
  EXPECT_TRUE(fails(stream_->synchronize(soon()), ErrorCode::kInternal, {"thrown by a task"}));
  launch([]() -> Result<void> { throw std::bad_alloc(); });
  EXPECT_TRUE(fails(stream_->synchronize(soon()), ErrorCode::kInternal, {"bad_alloc"}));
  launch([]() -> Result<void> { throw 42; });
  EXPECT_TRUE(fails(stream_->synchronize(soon()), ErrorCode::kInternal, {"threw"}));
  launch([]() -> Result<void> { return {}; });
  EXPECT_TRUE(succeeds(stream_->synchronize(soon())));
}

TEST_F(DeviceCpuTest, SkippedTasksGiveUpWhatTheyCaptured) {
  const auto captured = std::make_shared<int>(1);
  bool ran = false;
  launch([]() -> Result<void> { return fail(ErrorCode::kNumeric, "bad value"); });
  launch([captured, &ran]() -> Result<void> {
    ran = true;
    return {};
  });
  EXPECT_TRUE(fails(stream_->synchronize(soon()), ErrorCode::kNumeric));
  EXPECT_EQ(captured.use_count(), 1);
  EXPECT_FALSE(ran);
}

TEST_F(DeviceCpuTest, FinishedTasksGiveUpWhatTheyCaptured) {
  const auto captured = std::make_shared<int>(1);
  launch([captured]() -> Result<void> { return {}; });
  EXPECT_TRUE(succeeds(stream_->synchronize(soon())));
  EXPECT_EQ(captured.use_count(), 1);
}

TEST_F(DeviceCpuTest, EmptyTaskIsRefused) {
  EXPECT_TRUE(fails(cpu::launch(*stream_, cpu::Task()), ErrorCode::kInvalidArgument, {"empty"}));
}

TEST_F(DeviceCpuTest, TaskMustNotSynchronizeItsOwnStream) {
  launch([this]() -> Result<void> { return stream_->synchronize(); });
  EXPECT_TRUE(fails(stream_->synchronize(soon()), ErrorCode::kInvalidArgument, {"wait for itself"}));
}

/// Neither a stream nor an event of the CPU leaf.
class ForeignEvent final : public Event {
 public:
  [[nodiscard]] bool is_done() const override { return true; }
  [[nodiscard]] Result<void> synchronize(Deadline) override { return {}; }
  [[nodiscard]] Result<double> elapsed_us(const Event&) const override { return 0.0; }
};

class ForeignStream final : public Stream {
 public:
  explicit ForeignStream(Device& device) : Stream(device, 0) {}

 private:
  Result<void> do_copy(const TensorView&, const TensorView&) override { return {}; }
  Result<void> do_write_value32(std::uint32_t*, std::uint32_t) override { return {}; }
  Result<void> do_memset32(std::uint32_t*, std::uint32_t, std::int64_t) override { return {}; }
  Result<void> do_sleep(std::chrono::nanoseconds) override { return {}; }
  Result<void> do_record(Event&) override { return {}; }
  Result<void> do_wait(const Event&) override { return {}; }
  Result<void> do_wait(Stream&) override { return {}; }
  Result<void> do_synchronize(Deadline) override { return {}; }
};

TEST_F(DeviceCpuTest, PartsOfAnotherBackendAreRefused) {
  ForeignEvent event;
  ForeignStream stream(*device_);
  EXPECT_TRUE(fails(stream_->record(event), ErrorCode::kInvalidArgument, {"record", "CPU"}));
  EXPECT_TRUE(fails(stream_->wait(event), ErrorCode::kInvalidArgument, {"wait", "CPU"}));
  EXPECT_TRUE(fails(stream_->wait(stream), ErrorCode::kInvalidArgument, {"wait", "CPU"}));
  EXPECT_TRUE(fails(cpu::launch(stream, cpu::Task([]() -> Result<void> { return {}; })),
                    ErrorCode::kInvalidArgument, {"not a CPU stream"}));
  const auto own = device_->create_event().value();
  const auto elapsed_us = own->elapsed_us(event);
  ASSERT_FALSE(elapsed_us.has_value());
  EXPECT_EQ(elapsed_us.error().code(), ErrorCode::kInvalidArgument);
}

TEST_F(DeviceCpuTest, DevicesThatDoNotExist) {
  const auto second = open_device({DeviceKind::kCpu, 1}, Config{});
  ASSERT_FALSE(second.has_value());
  EXPECT_EQ(second.error().code(), ErrorCode::kUnsupported);
  EXPECT_NE(second.error().text().find("cpu:1"), std::string::npos) << second.error().text();
  const auto gpu = open_device({DeviceKind::kCuda, 99}, Config{});
  ASSERT_FALSE(gpu.has_value());
  EXPECT_EQ(gpu.error().code(), ErrorCode::kUnsupported);
  EXPECT_NE(gpu.error().text().find("cuda:99"), std::string::npos) << gpu.error().text();
}

}  // namespace
}  // namespace tandem::test
