#include <gtest/gtest.h>

#include <string>
#include <tandem/base/error.hpp>

#include "base/try.hpp"

namespace tandem {
namespace {

const std::string kText = "a text that is too long to lie in the string itself";

TEST(Try, LeavesAResultThatHasANameWhole) {
  Result<void> kept = fail(ErrorCode::kTimeout, kText);
  const auto asked = [&]() -> Result<int> {
    TANDEM_TRY(kept);
    return 1;
  };
  for (int i = 0; i < 2; ++i) {
    const Result<int> answer = asked();
    ASSERT_FALSE(answer);
    EXPECT_EQ(answer.error().text(), kText);
  }
  kept = {};
  EXPECT_EQ(asked(), 1);
}

TEST(Try, ReturnsWhatACallReturned) {
  const auto inner = [](bool works) -> Result<void> {
    if (!works) return fail(ErrorCode::kTimeout, kText);
    return {};
  };
  const auto outer = [&](bool works) -> Result<int> {
    TANDEM_TRY(inner(works));
    return 1;
  };
  EXPECT_EQ(outer(true), 1);
  EXPECT_EQ(outer(false).error().text(), kText);
}

}  // namespace
}  // namespace tandem
