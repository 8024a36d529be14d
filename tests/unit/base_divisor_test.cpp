// Division by multiplication and shift gives what division gives.
#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <tandem/base/divisor.hpp>

namespace tandem {
namespace {

void check(int dividend, int divisor) {
  const Divisor by(divisor);
  ASSERT_EQ(by.value(), divisor);
  ASSERT_EQ(dividend / by, dividend / divisor) << dividend << " / " << divisor;
  ASSERT_EQ(dividend % by, dividend % divisor) << dividend << " % " << divisor;
}

TEST(Divisor, IsExactAroundEveryMultipleOfSmallNumbers) {
  for (int divisor = 1; divisor <= 300; ++divisor) {
    for (int dividend = 0; dividend <= 2000; ++dividend) check(dividend, divisor);
  }
}

TEST(Divisor, IsExactForTheLargestNumbers) {
  for (int bits = 0; bits < 31; ++bits) {
    for (const std::int64_t off : {-1, 0, 1}) {
      const std::int64_t divisor = (std::int64_t{1} << bits) + off;
      if (divisor < 1) continue;
      for (const int dividend : {0, 1, INT32_MAX - 1, INT32_MAX}) check(dividend, static_cast<int>(divisor));
      const auto last = static_cast<int>(INT32_MAX / divisor * divisor);
      check(last, static_cast<int>(divisor));
      check(last - 1, static_cast<int>(divisor));
    }
  }
  check(INT32_MAX, INT32_MAX);
}

TEST(Divisor, IsExactForRandomNumbers) {
  std::mt19937 random(5);
  for (int i = 0; i < 300'000; ++i) {
    const auto dividend = static_cast<int>(random() >> (1 + random() % 31));
    const auto divisor = static_cast<int>(random() >> (1 + random() % 31));
    if (divisor > 0) check(dividend, divisor);
  }
}

template <class Dividend>
constexpr bool kIsDivided = requires(Dividend dividend, Divisor by) {
  dividend / by;
  dividend % by;
};

TEST(Divisor, TakesNoOtherTypeThanInt) {
  static_assert(kIsDivided<int> && kIsDivided<const int&>);
  static_assert(!kIsDivided<std::int64_t> && !kIsDivided<unsigned> && !kIsDivided<std::size_t>);
}

TEST(Divisor, IsOneUnlessSaidOtherwise) {
  constexpr Divisor kOne;
  static_assert(17 / kOne == 17 && 17 % kOne == 0);
  constexpr Divisor kSeven(7);
  static_assert(Divisor::pick(true, kSeven, kOne).value() == 7 &&
                20 / Divisor::pick(false, kOne, kSeven) == 2);
}

}  // namespace
}  // namespace tandem
