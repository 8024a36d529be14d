#include <gtest/gtest.h>

#include <chrono>
#include <thread>
#include <vector>

#include "harness/stopwatch.hpp"

namespace tandem::harness {
namespace {

TEST(CallTimes, ProcessorTimeStandsStillInASleep) {
  CallTimes times;
  times.time([] { std::this_thread::sleep_for(std::chrono::milliseconds(20)); });
  times.time([] {
    CallTimes inner;  // works until the processor's clock has moved
    double worked = 0;
    while (worked < 1000) {
      inner.time([] { static_cast<void>(median(std::vector<double>(1000, 1.0))); });
      worked += inner.cpu_us.back();
    }
  });
  ASSERT_EQ(times.us.size(), 2U);
  ASSERT_EQ(times.cpu_us.size(), 2U);
  EXPECT_GE(times.us[0], 20000);
  EXPECT_LT(times.cpu_us[0], times.us[0]);
  EXPECT_GE(times.cpu_us[1], 1000);
}

TEST(CallTimes, MedianIsTheMiddleOne) {
  EXPECT_EQ(median({}), 0);
  EXPECT_EQ(median({3, 1, 2}), 2);
  EXPECT_EQ(median({4, 1, 2, 3}), 2.5);
}

}  // namespace
}  // namespace tandem::harness
