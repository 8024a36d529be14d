#include <gtest/gtest.h>

#include <limits>
#include <tandem/program/host/scalar.hpp>

namespace tandem::program::host {
namespace {

TEST(ScalarOfAHostProgram, PrintsItsParts) {
  const Scalar i0 = Scalar::named("i0");
  const Scalar i2 = Scalar::named("i2");
  EXPECT_EQ((i0 * i2 * Scalar(3)).to_string(), "( ( i0 * i2 ) * 3 )");
  EXPECT_EQ((i0 % (i2 - Scalar(1))).to_string(), "( i0 % ( i2 - 1 ) )");
  EXPECT_EQ(Scalar::equal(i0, i0 + i2).to_string(), "( i0 == ( i0 + i2 ) )");
}

TEST(ScalarOfAHostProgram, Evaluates) {
  const Scalar rank = Scalar::named("deviceIdx.x");
  const Scalar size = Scalar::named("i2");
  const Scalar before = (rank + (size - Scalar(1))) % size;
  EXPECT_EQ(before.evaluate({{"deviceIdx.x", 0}, {"i2", 4}}), 3);
  EXPECT_EQ(before.evaluate({{"deviceIdx.x", 3}, {"i2", 4}}), 2);
  EXPECT_EQ(Scalar::equal(rank, size).evaluate({{"deviceIdx.x", 4}, {"i2", 4}}), 1);
  EXPECT_EQ((rank * size).evaluate({{"deviceIdx.x", 3}, {"i2", 4}}), 12);
}

TEST(ScalarOfAHostProgram, RefusesWhatHasNoValue) {
  const Scalar x = Scalar::named("x");
  EXPECT_EQ(x.evaluate({}).error().text(), "symbol x has no value");
  EXPECT_EQ((x % Scalar(0)).evaluate({{"x", 1}}).error().text(),
            "( x % 0 ): got a remainder by 0, need at least 1");
  const std::int64_t most = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ((x * Scalar(2)).evaluate({{"x", most}}).error().text(), "( x * 2 ) is beyond 64 bits");
}

}  // namespace
}  // namespace tandem::program::host
