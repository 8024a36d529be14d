#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "conformance/device_backends.hpp"

// Stream::copy over every type and kind of layout: each element arrives, and no byte outside the destination
// changes.

namespace tandem::test {
namespace {

constexpr std::uint8_t kGuard = 0xa5;

/// Where a view lies inside a block of bytes.
struct Layout {
  Dims sizes;
  Dims strides;
  std::int64_t offset = 0;  // elements before the first one
};

struct CopyCase {
  std::string name;
  Layout from;
  Layout to;
};

Layout row_major(const Dims& sizes, std::int64_t offset = 0) {
  return {sizes, contiguous_strides(sizes), offset};
}

/// Elements from the block's start to the last one the layout touches.
std::int64_t extent(const Layout& layout) {
  std::int64_t last = layout.offset;
  for (int d = 0; d < layout.sizes.size(); ++d) {
    if (layout.sizes[d] == 0) return layout.offset;
    if (layout.strides[d] > 0) last += (layout.sizes[d] - 1) * layout.strides[d];
  }
  return last + 1;
}

/// Element offsets of all elements in row-major order: the reference, written without regard to speed.
std::vector<std::int64_t> element_offsets(const Layout& layout) {
  std::vector<std::int64_t> offsets = {layout.offset};
  for (int d = 0; d < layout.sizes.size(); ++d) {
    std::vector<std::int64_t> longer;
    for (const std::int64_t offset : offsets) {
      for (std::int64_t i = 0; i < layout.sizes[d]; ++i) longer.push_back(offset + i * layout.strides[d]);
    }
    offsets = std::move(longer);
  }
  return offsets;
}

std::vector<CopyCase> copy_cases() {
  return {
      {"contiguous_1d", row_major({1000}), row_major({1000})},
      {"contiguous_3d", row_major({5, 7, 11}), row_major({5, 7, 11})},
      {"single", row_major({1}), row_major({1})},
      {"zero_dims", row_major({}), row_major({})},
      {"empty", row_major({0}), row_major({0})},
      {"empty_inside", row_major({4, 0, 3}), row_major({4, 0, 3})},
      {"unaligned", row_major({33}, 3), row_major({33}, 5)},
      {"rows_out_of_a_wider_matrix", {{9, 13}, {20, 1}, 4}, row_major({9, 13})},
      {"rows_into_a_wider_matrix", row_major({9, 13}), {{9, 13}, {20, 1}, 4}},
      {"rows_to_rows", {{9, 13}, {17, 1}, 1}, {{9, 13}, {20, 1}, 4}},
      {"column", {{12, 1}, {7, 1}, 3}, {{12, 1}, {5, 1}, 2}},
      {"transpose", {{8, 6}, {1, 8}, 0}, row_major({8, 6})},
      {"transpose_both", {{8, 6}, {1, 8}, 0}, {{8, 6}, {1, 8}, 0}},
      {"transpose_to", row_major({8, 6}), {{8, 6}, {1, 10}, 0}},
      {"middle_dim_strided", {{4, 3, 5}, {60, 10, 1}, 2}, {{4, 3, 5}, {15, 5, 1}, 0}},
      {"leading_dims_merge", {{4, 3, 5}, {30, 10, 1}, 0}, {{4, 3, 5}, {24, 8, 1}, 0}},
      {"every_other", {{3, 4, 5}, {40, 10, 2}, 0}, {{3, 4, 5}, {60, 15, 3}, 1}},
      {"permuted", {{3, 4, 5}, {1, 3, 12}, 0}, {{3, 4, 5}, {5, 15, 1}, 0}},
      {"backwards", {{10}, {-1}, 9}, row_major({10})},
      {"backwards_rows", row_major({4, 6}), {{4, 6}, {-9, 1}, 27}},
      {"broadcast", {{4, 6}, {0, 1}, 0}, row_major({4, 6})},
      {"size_one_dims", {{1, 5, 1, 3}, {999, 4, -7, 1}, 0}, {{1, 5, 1, 3}, {-3, 3, 500, 1}, 0}},
      {"eight_dims",
       {{2, 2, 2, 2, 2, 2, 2, 2}, {512, 2, 256, 4, 128, 8, 64, 16}, 0},
       {{2, 2, 2, 2, 2, 2, 2, 2}, {1, 256, 2, 128, 4, 64, 8, 32}, 0}},
  };
}

class DeviceCopyTest : public DeviceTest {
 protected:
  /// A device block of `values` and a view of `layout` in it, `guard` bytes after the block's start.
  struct Block {
    Tensor bytes;
    TensorView view;
  };
  [[nodiscard]] Block make_block(const std::vector<std::uint8_t>& values, const Layout& layout, DType dtype,
                                 std::int64_t skip_bytes) {
    auto bytes = device_->allocate_tensor({static_cast<std::int64_t>(values.size())}, DType::kU8);
    EXPECT_TRUE(bytes.has_value());
    EXPECT_TRUE(succeeds(device_->copy_from_host(values.data(), bytes->view())));
    TensorView view = bytes->view();
    view.data = view.data_as<std::uint8_t>() + skip_bytes + layout.offset * size_bytes(dtype);
    view.sizes = layout.sizes;
    view.strides = layout.strides;
    view.dtype = dtype;
    return {std::move(bytes).value(), view};
  }

  void check(const CopyCase& test, DType dtype) {
    const std::int64_t element = size_bytes(dtype);
    constexpr std::int64_t kMargin = 64;
    const auto block_bytes = [&](const Layout& layout) {
      return static_cast<std::size_t>(extent(layout) * element + 2 * kMargin);
    };
    std::vector<std::uint8_t> source(block_bytes(test.from));
    for (std::size_t i = 0; i < source.size(); ++i)
      source[i] = static_cast<std::uint8_t>(i * 37 + 11 + i / 251);
    std::vector<std::uint8_t> expected(block_bytes(test.to), kGuard);
    const Block from = make_block(source, test.from, dtype, kMargin);
    const Block to = make_block(expected, test.to, dtype, kMargin);

    const auto from_offsets = element_offsets(test.from);
    const auto to_offsets = element_offsets(test.to);
    for (std::size_t i = 0; i < to_offsets.size(); ++i) {
      std::memcpy(&expected[static_cast<std::size_t>(kMargin + to_offsets[i] * element)],
                  &source[static_cast<std::size_t>(kMargin + from_offsets[i] * element)],
                  static_cast<std::size_t>(element));
    }
    ASSERT_TRUE(succeeds(stream_->copy(from.view, to.view)));
    ASSERT_TRUE(succeeds(stream_->synchronize(soon())));
    EXPECT_EQ(read_bytes(to.bytes.view()), expected) << test.name << " " << to_string(dtype);
    EXPECT_EQ(read_bytes(from.bytes.view()), source)
        << test.name << " " << to_string(dtype) << ": source changed";
  }
};

TEST_P(DeviceCopyTest, EveryLayoutOfEveryType) {
  for (int dtype = 0; dtype < kNumDTypes; ++dtype) {
    for (const CopyCase& test : copy_cases()) check(test, static_cast<DType>(dtype));
  }
}

TEST_P(DeviceCopyTest, LargeContiguousAndLargeStrided) {
  check({"large", row_major({3, 1 << 18}), row_major({3, 1 << 18})}, DType::kF32);
  check({"large_rows", {{300, 1000}, {1024, 1}, 8}, {{300, 1000}, {1111, 1}, 0}}, DType::kBF16);
  check({"large_transpose", {{300, 500}, {1, 300}, 0}, row_major({300, 500})}, DType::kF32);
}

TEST_P(DeviceCopyTest, EmptyCopyNeedsNoMemory) {
  const TensorView nothing = TensorView::contiguous(nullptr, {0, 4}, DType::kF32, device_->id());
  EXPECT_TRUE(succeeds(stream_->copy(nothing, nothing)));
  EXPECT_TRUE(succeeds(stream_->synchronize(soon())));
}

TANDEM_ON_ALL_DEVICES(DeviceCopyTest);

}  // namespace
}  // namespace tandem::test
