// Times at places of streams, on the host's clock, on every backend: in the order of the work, inside the
// host's own times, aligned between devices.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "conformance/device_backends.hpp"
#include "device/stamps.hpp"

namespace tandem::test {
namespace {

using std::chrono::milliseconds;

class DeviceStamps : public DeviceTest {
 protected:
  static constexpr std::int32_t kCapacity = 16;

  void SetUp() override {
    DeviceTest::SetUp();
    if (!device_) return;
    stamps_ = make_stamps(*device_);
    ASSERT_NE(stamps_, nullptr);
  }
  void TearDown() override {
    stamps_.reset();
    DeviceTest::TearDown();
  }

  static std::unique_ptr<Stamps> make_stamps(Device& device) {
    auto* const service = device.service<StampService>();
    EXPECT_NE(service, nullptr);
    if (service == nullptr) return nullptr;
    auto stamps = service->create(device, kCapacity);
    EXPECT_TRUE(stamps.has_value()) << (stamps ? "" : stamps.error().to_string());
    return stamps ? *std::move(stamps) : nullptr;
  }
  std::vector<std::int64_t> read() {
    EXPECT_TRUE(succeeds(stream_->synchronize(soon())));
    EXPECT_TRUE(succeeds(other_->synchronize(soon())));
    auto times = stamps_->read();
    EXPECT_TRUE(times.has_value()) << (times ? "" : times.error().to_string());
    return times ? times->at : std::vector<std::int64_t>(kCapacity, 0);
  }

  std::unique_ptr<Stamps> stamps_;
};

TEST_P(DeviceStamps, LieInTheOrderOfTheWorkAndOnTheHostsClock) {
  const std::int64_t begin_ns = host_now_ns();
  ASSERT_TRUE(succeeds(stamps_->take(*stream_, 0)));
  ASSERT_TRUE(succeeds(stream_->sleep(milliseconds(20))));
  ASSERT_TRUE(succeeds(stamps_->take(*stream_, 1)));
  // Behind the sleep of another stream.
  ASSERT_TRUE(succeeds(other_->wait(*stream_)));
  ASSERT_TRUE(succeeds(stamps_->take(*other_, 3)));
  ASSERT_TRUE(succeeds(stream_->synchronize(soon())));
  ASSERT_TRUE(succeeds(other_->synchronize(soon())));
  const std::int64_t end_ns = host_now_ns();
  const auto times = read();
  ASSERT_EQ(times.size(), 4U);
  const std::int64_t slack_ns = stamps_->uncertainty_ns();  // of this reading too
  EXPECT_GE(times[0], begin_ns - slack_ns);
  EXPECT_GE(times[1] - times[0], 20'000'000 - 2 * slack_ns);
  EXPECT_EQ(times[2], StampedTimes::kNever);
  EXPECT_GE(times[3], times[1]);
  EXPECT_LE(times[3], end_ns + slack_ns);
}

TEST_P(DeviceStamps, AStreamThatIsHeldIsStampedWhenItGoesOn) {
  ASSERT_TRUE(succeeds(stamps_->take(*stream_, 0)));
  const auto gate = hold(*stream_);
  ASSERT_TRUE(succeeds(stamps_->take(*stream_, 1)));
  const std::int64_t opened_ns = host_now_ns();
  gate->open();
  const auto times = read();
  ASSERT_EQ(times.size(), 2U);
  EXPECT_GE(times[1], opened_ns - stamps_->uncertainty_ns());
  EXPECT_GE(times[1], times[0]);
}

TEST_P(DeviceStamps, ReadingStartsAnew) {
  ASSERT_TRUE(succeeds(stamps_->take(*stream_, 5)));
  const auto first = read();
  ASSERT_EQ(first.size(), 6U);
  ASSERT_TRUE(succeeds(stamps_->take(*stream_, 1)));
  const auto second = read();
  ASSERT_EQ(second.size(), 2U);
  EXPECT_EQ(second[0], StampedTimes::kNever);
  EXPECT_GE(second[1], first[5]);
  EXPECT_TRUE(read().empty());
}

TEST_P(DeviceStamps, TwoDevicesHaveOneClock) {
  auto device = GetParam().open(Config{});
  ASSERT_TRUE(device.has_value());
  const auto others = make_stamps(**device);
  ASSERT_NE(others, nullptr);
  auto stream = (*device)->create_stream();
  ASSERT_TRUE(stream.has_value());
  // In turns, each behind the other by the host.
  ASSERT_TRUE(succeeds(stamps_->take(*stream_, 0)));
  ASSERT_TRUE(succeeds(stream_->synchronize(soon())));
  ASSERT_TRUE(succeeds(others->take(**stream, 0)));
  ASSERT_TRUE(succeeds((*stream)->synchronize(soon())));
  ASSERT_TRUE(succeeds(stamps_->take(*stream_, 1)));
  const auto times = read();
  const auto theirs = others->read();
  ASSERT_TRUE(theirs.has_value());
  const std::int64_t slack_ns = stamps_->uncertainty_ns() + others->uncertainty_ns();
  EXPECT_GE(theirs->at[0], times[0] - slack_ns);
  EXPECT_LE(theirs->at[0], times[1] + slack_ns);
}

TEST_P(DeviceStamps, RefusesWhatItHasNoPlaceFor) {
  const auto kInvalid = ErrorCode::kInvalidArgument;
  EXPECT_TRUE(fails(stamps_->take(*stream_, -1), kInvalid, {"number -1", "[0, 16)"}));
  EXPECT_TRUE(fails(stamps_->take(*stream_, kCapacity), kInvalid, {"number 16", "[0, 16)"}));
  const auto none = device_->service<StampService>()->create(*device_, 0);
  ASSERT_FALSE(none.has_value());
  EXPECT_EQ(none.error().code(), kInvalid);
  if (!stream_->begin_capture()) return;
  EXPECT_TRUE(fails(stamps_->take(*stream_, 0), ErrorCode::kUnsupported, {"records a graph"}));
  static_cast<void>(stream_->end_capture());
  EXPECT_TRUE(read().empty());
}

TEST_P(DeviceStamps, SaysWhichClockItHas) {
  EXPECT_NE(stamps_->clock().find("CLOCK_MONOTONIC"), std::string_view::npos);
  EXPECT_GT(stamps_->uncertainty_ns(), 0);
  EXPECT_EQ(stamps_->chunk_waits(7).tag, 7);
  EXPECT_NE(stamps_->chunk_waits(7).waits, nullptr);
}

TANDEM_ON_ALL_DEVICES(DeviceStamps);

}  // namespace
}  // namespace tandem::test
