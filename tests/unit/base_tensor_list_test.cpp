#include <gtest/gtest.h>

#include <array>
#include <optional>
#include <span>
#include <tandem/base/tensor_list.hpp>
#include <type_traits>
#include <utility>
#include <vector>

namespace tandem {
namespace {

TensorView view_of_size(std::int64_t size) {
  static float memory[8];
  return TensorView::contiguous(memory, {size}, DType::kF32);
}

// What would dangle does not compile.
static_assert(!std::is_constructible_v<TensorList, std::vector<TensorView>>);
static_assert(!std::is_constructible_v<TensorList, std::array<TensorView, 2>>);
static_assert(!std::is_constructible_v<TensorList, std::initializer_list<TensorView>>);
static_assert(!std::is_constructible_v<TensorList, TensorView, TensorView>);
static_assert(!std::is_constructible_v<TensorList, std::vector<std::optional<TensorView>>&>);
static_assert(std::is_convertible_v<const std::vector<TensorView>&, TensorList>);
static_assert(std::is_convertible_v<std::span<TensorView>, TensorList>);
static_assert(std::is_convertible_v<TensorView, OptionalTensorList>);
static_assert(std::is_trivially_copyable_v<TensorList> && std::is_trivially_copyable_v<OptionalTensorList>);

TEST(TensorList, KeepsATemporaryView) {
  TensorList list = view_of_size(5).narrow(0, 1, 3);
  const TensorList copy = std::exchange(list, TensorList());
  EXPECT_TRUE(list.empty());
  ASSERT_EQ(copy.size(), 1U);
  EXPECT_EQ(copy.front().size(0), 3);
  EXPECT_EQ(copy.data(), copy.begin());
  EXPECT_EQ(copy.end() - copy.begin(), 1);
}

TEST(TensorList, RefersToSeveral) {
  const std::vector<TensorView> views = {view_of_size(1), view_of_size(2), view_of_size(3)};
  const std::array<TensorView, 2> pair = {views[0], views[1]};
  const auto check = [](const TensorList& list, const TensorView* data, std::size_t size) {
    EXPECT_EQ(list.data(), data);
    EXPECT_EQ(list.size(), size);
  };
  check(views, views.data(), 3);
  check(pair, pair.data(), 2);
  check(std::span(views).subspan(1), &views[1], 2);
  check({&views[2], 1}, &views[2], 1);
  check({}, nullptr, 0);
  const TensorList list = views;
  const std::span<const TensorView> span = list;
  EXPECT_EQ(span.data(), views.data());
  EXPECT_EQ(list[2].size(0), 3);
}

TEST(TensorList, MayHaveGaps) {
  const std::vector<std::optional<TensorView>> some = {view_of_size(2), std::nullopt};
  const OptionalTensorList list = some;
  EXPECT_EQ(list.size(), 2U);
  EXPECT_TRUE(list[0]);
  EXPECT_FALSE(list[1]);
  const OptionalTensorList one = view_of_size(4);
  ASSERT_EQ(one.size(), 1U);
  EXPECT_EQ(one[0]->size(0), 4);
}

}  // namespace
}  // namespace tandem
