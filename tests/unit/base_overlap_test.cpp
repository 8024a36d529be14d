#include "base/overlap.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <limits>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace tandem {
namespace {

constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();

/// Offsets in bytes from view.data of each element's first byte, with repetitions.
std::vector<std::int64_t> element_offsets(const TensorView& view) {
  std::vector<std::int64_t> offsets = {0};
  for (int d = 0; d < view.dim(); ++d) {
    std::vector<std::int64_t> longer;
    for (const std::int64_t offset : offsets) {
      for (std::int64_t i = 0; i < view.size(d); ++i)
        longer.push_back(offset + i * view.stride(d) * size_bytes(view.dtype));
    }
    offsets = std::move(longer);
  }
  return offsets;
}

std::set<const std::byte*> bytes_of(const TensorView& view) {
  std::set<const std::byte*> bytes;
  for (const std::int64_t offset : element_offsets(view)) {
    for (std::int64_t i = 0; i < size_bytes(view.dtype); ++i)
      bytes.insert(view.data_as<const std::byte>() + offset + i);
  }
  return bytes;
}

bool share_a_byte(const TensorView& x, const TensorView& y) {
  const auto bytes = bytes_of(x);
  for (const std::byte* byte : bytes_of(y)) {
    if (bytes.count(byte) != 0) return true;
  }
  return false;
}

bool repeats_an_element(const TensorView& view) {
  const auto offsets = element_offsets(view);
  return std::set<std::int64_t>(offsets.begin(), offsets.end()).size() != offsets.size();
}

/// Small views near the middle of `memory`, of any strides.
class AnyView {
 public:
  TensorView next(std::byte* middle) {
    TensorView view;
    const DType dtypes[] = {DType::kU8, DType::kBF16, DType::kF32, DType::kF64};
    view.dtype = dtypes[between(0, 3)];
    view.data = middle + between(-40, 40);
    const std::int64_t num_dims = between(0, 4);
    for (std::int64_t d = 0; d < num_dims; ++d) {
      view.sizes.push_back(between(0, 30) == 0 ? 0 : between(1, 4));
      view.strides.push_back(between(-9, 17));
    }
    return view;
  }

 private:
  std::int64_t between(std::int64_t least, std::int64_t most) {
    return std::uniform_int_distribution<std::int64_t>(least, most)(random_);
  }
  std::mt19937 random_{1};
};

TEST(BaseOverlap, IsThatOfTheBytes) {
  std::vector<std::byte> memory(4096);
  AnyView any;
  int num_shared = 0;
  constexpr int kPairs = 20'000;
  for (int i = 0; i < kPairs; ++i) {
    const TensorView x = any.next(memory.data() + 2048);
    const TensorView y = any.next(memory.data() + 2048);
    const bool want = share_a_byte(x, y);
    num_shared += want ? 1 : 0;
    ASSERT_EQ(share_memory(x, y), want)
        << to_string(x) << " at " << x.data << " and " << to_string(y) << " at " << y.data;
  }
  EXPECT_GT(num_shared, kPairs / 10);
  EXPECT_LT(num_shared, kPairs - kPairs / 10);
}

TEST(BaseOverlap, OfAViewWithItselfIsThatOfItsElements) {
  std::byte memory{};
  AnyView any;
  int num_repeating = 0;
  constexpr int kViews = 20'000;
  for (int i = 0; i < kViews; ++i) {
    const TensorView view = any.next(&memory);
    const bool want = repeats_an_element(view);
    num_repeating += want ? 1 : 0;
    ASSERT_EQ(shares_memory_with_itself(view), want) << to_string(view);
  }
  EXPECT_GT(num_repeating, kViews / 10);
  EXPECT_LT(num_repeating, kViews - kViews / 10);
}

TensorView matrix(std::int64_t element, Dims sizes, Dims strides, DType dtype = DType::kF32) {
  // No memory is touched.
  const auto address =
      static_cast<std::uintptr_t>(1 << 20) + static_cast<std::uintptr_t>(element * size_bytes(dtype));
  return {reinterpret_cast<void*>(address), sizes, strides, dtype, {}};
}

// Sizes that no search through the elements could go through.
TEST(BaseOverlap, OfLargeViewsOfOneMatrixIsExact) {
  constexpr std::int64_t kSide = std::int64_t{1} << 20;
  const TensorView left = matrix(0, {kSide, kSide / 2}, {kSide, 1});
  EXPECT_FALSE(share_memory(left, matrix(kSide / 2, {kSide, kSide / 2}, {kSide, 1}))) << "right columns";
  EXPECT_TRUE(share_memory(left, matrix(kSide / 2 - 1, {kSide, kSide / 2}, {kSide, 1}))) << "one more";
  EXPECT_FALSE(share_memory(left, matrix(kSide / 2, {kSide / 2, kSide}, {1, kSide}))) << "transposed";
  EXPECT_FALSE(share_memory(matrix(0, {kSide / 2, kSide}, {2 * kSide, 1}),
                            matrix(kSide, {kSide / 2, kSide}, {2 * kSide, 1})))
      << "even and odd rows";
  EXPECT_FALSE(
      share_memory(matrix(0, {kSide, kSide / 2}, {kSide, 2}), matrix(1, {kSide, kSide / 2}, {kSide, 2})))
      << "even and odd columns";
  EXPECT_FALSE(share_memory(matrix(0, {8, kSide, 64}, {kSide * 1024, 1024, 1}),
                            matrix(64, {8, kSide, 960}, {kSide * 1024, 1024, 1})))
      << "two heads";
  EXPECT_TRUE(share_memory(left, matrix(kSide * kSide - kSide / 2 - 1, {1}, {1}))) << "its last element";
  EXPECT_FALSE(share_memory(left, matrix(kSide * kSide - kSide / 2, {1}, {1}))) << "behind it";
}

TEST(BaseOverlap, EndsWhereTheSearchTakesTooLong) {
  // Even offsets and odd ones: no byte is shared, and no stride divides another.
  const TensorView x = matrix(0, {1'000'000, 1'000'000, 3}, {2'000'006, 2'000'002, 34});
  const TensorView y = matrix(1, {1'000'000, 1'000'000, 3}, {2'000'014, 2'000'018, 38});
  EXPECT_FALSE(share_memory(x, y)) << "all differences are odd";
  const TensorView z = matrix(1, {1'000'000, 1'000'000, 3}, {2'000'014, 2'000'018, 39});
  EXPECT_TRUE(share_memory(x, z));
}

TEST(BaseOverlap, OfStridesBeyondAllMemoryIsAssumed) {
  const TensorView small = matrix(0, {4}, {1});
  for (const std::int64_t stride : {kMost, -kMost, std::numeric_limits<std::int64_t>::min(), kMost / 2}) {
    const TensorView view = matrix(0, {2, 3}, {stride, 1});
    EXPECT_TRUE(share_memory(small, view)) << stride;
    EXPECT_TRUE(shares_memory_with_itself(view)) << stride;
    const auto refused = check_writable("op", {"out", 1, &view});
    ASSERT_FALSE(refused);
    EXPECT_NE(refused.error().text().find("op: out[1] is f32 [2, 3]"), std::string::npos)
        << refused.error().text();
    // Of a size of 1 a stride means nothing.
    EXPECT_FALSE(shares_memory_with_itself(matrix(0, {1, 3}, {stride, 1})));
    EXPECT_FALSE(share_memory(small, matrix(4, {1, 3}, {stride, 1}))) << stride;
  }
}

TEST(BaseOverlap, ErrorsHaveBothArgumentsAndTheirBytes) {
  const TensorView out = matrix(0, {2, 3}, {3, 1});
  const TensorView a = matrix(5, {4}, {1});
  const auto refused = check_apart("op", {"out", -1, &out}, {"a", 2, &a});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(refused.error().text(),
            "op: out (24 bytes at 0x100000, f32 [2, 3] strides [3, 1] on cpu:0) is written and overlaps a[2] "
            "(16 bytes at 0x100014, f32 [4] strides [1] on cpu:0), need memory of its own");
}

TEST(BaseOverlap, ReadOnlyMemoryIsNoOutput) {
  const float memory[6] = {};
  const TensorView view = TensorView::read_only(memory, {2, 3}, DType::kF32);
  EXPECT_TRUE(view.movedim(0, 1).is_read_only && view.select(0, 1).is_read_only);
  const TensorView part = view.narrow(0, 1, 1);
  const TensorView elsewhere = TensorView::contiguous(nullptr, {3}, DType::kF32);
  const auto written = check_writable("op", {"out", 0, &part});
  ASSERT_FALSE(written);
  EXPECT_EQ(written.error().code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(
      written.error().text(),
      "op: out[0] is written and read-only (f32 [1, 3] strides [3, 1] on cpu:0), need memory to write to");
  EXPECT_FALSE(check_apart("op", {"out", -1, &part}, {"a", -1, &elsewhere}));
  EXPECT_TRUE(check_apart("op", {"out", -1, &elsewhere}, {"a", -1, &part}));
  EXPECT_FALSE(check_copy("op", {"from", -1, &elsewhere}, {"to", -1, &part}));
}

TEST(BaseOverlap, SameMemoryIsElementForElement) {
  const TensorView view = matrix(0, {2, 1, 3}, {3, 3, 1});
  EXPECT_TRUE(is_same_memory(view, matrix(0, {2, 1, 3}, {3, 99, 1}))) << "a size of 1 has no stride";
  EXPECT_FALSE(is_same_memory(view, matrix(1, {2, 1, 3}, {3, 3, 1})));
  EXPECT_FALSE(is_same_memory(view, matrix(0, {2, 1, 3}, {1, 1, 2})));
  EXPECT_FALSE(is_same_memory(view, matrix(0, {2, 3}, {3, 1})));
  EXPECT_FALSE(is_same_memory(view, matrix(0, {2, 1, 3}, {3, 3, 1}, DType::kU32)));
}

}  // namespace
}  // namespace tandem
