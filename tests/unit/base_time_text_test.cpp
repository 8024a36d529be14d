#include <gtest/gtest.h>

#include <chrono>
#include <tandem/base/time_text.hpp>

namespace tandem {
namespace {

TEST(TimeText, HasThreeDigitsAndAUnit) {
  const struct {
    double us;
    const char* text;
  } kTimes[] = {{0, "0 us"},           {0.0004, "0.40 ns"},   {0.0402, "40.2 ns"}, {0.9994, "999 ns"},
                {0.9996, "1.00 us"},   {1, "1.00 us"},        {9.994, "9.99 us"},  {9.996, "10.0 us"},
                {71.26, "71.3 us"},    {99.94, "99.9 us"},    {99.96, "100 us"},   {999.4, "999 us"},
                {999.6, "1.00 ms"},    {1504.537, "1.50 ms"}, {253'000, "253 ms"}, {999'600, "1.00 s"},
                {1'504'537, "1.50 s"}, {61e6, "61.0 s"},      {3'600e6, "3600 s"}, {-71.26, "-71.3 us"},
                {-1500, "-1.50 ms"}};
  for (const auto& time : kTimes) EXPECT_EQ(time_text(time.us), time.text) << time.us;
  EXPECT_EQ(time_text(std::chrono::microseconds(2500)), "2.50 ms");
  EXPECT_EQ(time_text(std::chrono::nanoseconds(40)), "40.0 ns");
}

}  // namespace
}  // namespace tandem
