#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <tandem/base/convert.hpp>
#include <tandem/base/numeric.hpp>
#include <vector>

namespace tandem {
namespace {

constexpr DType kAll[] = {DType::kF32,    DType::kF16, DType::kBF16, DType::kF8E4M3,
                          DType::kF8E5M2, DType::kU8,  DType::kU32,  DType::kI8,
                          DType::kI32,    DType::kI64, DType::kF64,  DType::kBool};

template <class T>
TensorView view_of(std::vector<T>& values, DType dtype) {
  return TensorView::contiguous(values.data(), {static_cast<std::int64_t>(values.size())}, dtype);
}

template <class To, class From>
std::vector<To> converted(std::vector<From> from, DType from_dtype, DType to_dtype) {
  std::vector<To> to(from.size());
  const auto result = convert(view_of(from, from_dtype), view_of(to, to_dtype));
  EXPECT_TRUE(result.has_value()) << result.error().to_string();
  return to;
}

// Small whole numbers are values of every type.
TEST(Convert, EveryPairKeepsWhatBothTypesHave) {
  for (const DType from_dtype : kAll) {
    for (const DType to_dtype : kAll) {
      SCOPED_TRACE(testing::Message() << to_string(from_dtype) << " to " << to_string(to_dtype));
      const bool has_bool = from_dtype == DType::kBool || to_dtype == DType::kBool;
      const Tensor start = Tensor::host({3, 5}, DType::kI64);
      for (std::int64_t i = 0; i < 15; ++i)
        start.view().data_as<std::int64_t>()[i] = has_bool ? i % 2 : i % 9;
      const Tensor from = Tensor::host({3, 5}, from_dtype);
      const Tensor to = Tensor::host({3, 5}, to_dtype);
      ASSERT_TRUE(convert(start.view(), from.view()));
      ASSERT_TRUE(convert(from.view(), to.view()));
      for (std::int64_t i = 0; i < 15; ++i) {
        ASSERT_EQ(element_as_f64(to.view(), i), static_cast<double>(start.view().data_as<std::int64_t>()[i]))
            << i;
      }
    }
  }
}

// A [4, 6] block in the middle of larger memories, one row-major and one turned; what is round it stays.
TEST(Convert, EveryPairHonoursStrides) {
  for (const DType from_dtype : kAll) {
    for (const DType to_dtype : kAll) {
      SCOPED_TRACE(testing::Message() << to_string(from_dtype) << " to " << to_string(to_dtype));
      const Tensor from = Tensor::host({6, 9}, from_dtype);
      const Tensor ramp = Tensor::host({6, 9}, DType::kF32);
      for (int i = 0; i < 54; ++i) ramp.view().data_as<float>()[i] = static_cast<float>(i % 2);
      ASSERT_TRUE(convert(ramp.view(), from.view()));
      const Tensor to = Tensor::host({8, 7}, to_dtype);
      std::memset(to.view().data, 0x3b, static_cast<std::size_t>(to.view().size_bytes()));
      const Tensor before = Tensor::host({8, 7}, to_dtype);
      std::memcpy(before.view().data, to.view().data, static_cast<std::size_t>(to.view().size_bytes()));

      const TensorView source = from.view().narrow(0, 1, 4).narrow(1, 2, 6);
      const TensorView target = to.view().narrow(0, 1, 6).narrow(1, 3, 4).movedim(0, 1);
      ASSERT_TRUE(convert(source, target));
      for (std::int64_t row = 0; row < 8; ++row) {
        for (std::int64_t column = 0; column < 7; ++column) {
          const bool is_inside = row >= 1 && row < 7 && column >= 3 && column < 7;
          const double want = is_inside ? element_as_f64(source, (column - 3) * 6 + row - 1)
                                        : element_as_f64(before.view(), row * 7 + column);
          ASSERT_EQ(element_as_f64(to.view(), row * 7 + column), want)
              << "row " << row << " column " << column;
        }
      }
    }
  }
}

TEST(Convert, ThreeStridedDimensionsAndNone) {
  const Tensor from = Tensor::host({2, 3, 4}, DType::kF32);
  for (int i = 0; i < 24; ++i) from.view().data_as<float>()[i] = static_cast<float>(i);
  const Tensor to = Tensor::host({4, 2, 3}, DType::kF64);
  ASSERT_TRUE(convert(from.view().movedim(2, 0), to.view()));
  for (int i = 0; i < 24; ++i) {
    EXPECT_EQ(to.view().data_as<double>()[i], i % 6 * 4 + i / 6) << i;
  }
  const Tensor one = Tensor::host({}, DType::kBF16);
  ASSERT_TRUE(convert(from.view().select(0, 1).select(0, 2).select(0, 3), one.view()));
  EXPECT_EQ(element_as_f64(one.view(), 0), 23.0);
  // No elements: the pointers are not touched.
  EXPECT_TRUE(convert(TensorView::contiguous(nullptr, {3, 0}, DType::kF32),
                      TensorView::contiguous(nullptr, {3, 0}, DType::kI8)));
}

// Just above a tie of the narrow type, by less than f32 can see: through a nearest f32 it would become the
// tie.
TEST(Convert, F64IsRoundedOnce) {
  const double f16_tie = 1.0 + std::ldexp(1.0, -11);
  const double bf16_tie = 1.0 + std::ldexp(1.0, -8);
  const double shade = std::ldexp(1.0, -40);
  EXPECT_EQ((converted<std::uint16_t, double>({f16_tie, f16_tie + shade, f16_tie - shade, -f16_tie - shade},
                                              DType::kF64, DType::kF16)),
            (std::vector<std::uint16_t>{0x3c00, 0x3c01, 0x3c00, 0xbc01}));
  EXPECT_EQ(
      (converted<std::uint16_t, double>({bf16_tie, bf16_tie + shade, bf16_tie - shade, -bf16_tie - shade},
                                        DType::kF64, DType::kBF16)),
      (std::vector<std::uint16_t>{0x3f80, 0x3f81, 0x3f80, 0xbf81}));
  EXPECT_EQ((converted<std::uint8_t, double>({1.0625, 1.0625 + shade}, DType::kF64, DType::kF8E4M3)),
            (std::vector<std::uint8_t>{0x38, 0x39}));
  EXPECT_EQ(
      (converted<std::uint16_t, double>({1e300, -1e300, 1e-300, std::nan("")}, DType::kF64, DType::kF16)),
      (std::vector<std::uint16_t>{0x7c00, 0xfc00, 0, 0x7e00}));
}

TEST(Convert, I64IsRoundedOnce) {
  // 2^60 + half a unit of f32 there + 1: through a nearest f64, which drops the 1, it would become the tie.
  const std::int64_t above_tie = (1LL << 60) + (1LL << 36) + 1;
  EXPECT_EQ(
      (converted<float, std::int64_t>({above_tie, above_tie - 1, -above_tie}, DType::kI64, DType::kF32)),
      (std::vector<float>{std::ldexp(1.0F, 60) + std::ldexp(1.0F, 37), std::ldexp(1.0F, 60),
                          -std::ldexp(1.0F, 60) - std::ldexp(1.0F, 37)}));
  const std::int64_t above_bf16_tie = (1LL << 60) + (1LL << 52) + 1;
  EXPECT_EQ((converted<std::uint16_t, std::int64_t>({above_bf16_tie, above_bf16_tie - 1}, DType::kI64,
                                                    DType::kBF16)),
            (std::vector<std::uint16_t>{0x5d81, 0x5d80}));
  constexpr std::int64_t kLimits[] = {std::numeric_limits<std::int64_t>::min(),
                                      std::numeric_limits<std::int64_t>::max(), (1LL << 53) + 1};
  EXPECT_EQ((converted<double, std::int64_t>({kLimits[0], kLimits[1], kLimits[2]}, DType::kI64, DType::kF64)),
            (std::vector<double>{-std::ldexp(1.0, 63), std::ldexp(1.0, 63), std::ldexp(1.0, 53)}));
}

TEST(Convert, IntegersSaturate) {
  constexpr auto kMin = std::numeric_limits<std::int64_t>::min();
  constexpr auto kMax = std::numeric_limits<std::int64_t>::max();
  const std::vector<std::int64_t> values = {kMin, -129, -128, -1, 0, 127, 128, 255, 256, kMax};
  EXPECT_EQ((converted<std::int8_t>(values, DType::kI64, DType::kI8)),
            (std::vector<std::int8_t>{-128, -128, -128, -1, 0, 127, 127, 127, 127, 127}));
  EXPECT_EQ((converted<std::uint8_t>(values, DType::kI64, DType::kU8)),
            (std::vector<std::uint8_t>{0, 0, 0, 0, 0, 127, 128, 255, 255, 255}));
  EXPECT_EQ(
      (converted<std::uint32_t, std::int64_t>({-1, 1LL << 32, (1LL << 32) - 1}, DType::kI64, DType::kU32)),
      (std::vector<std::uint32_t>{0, 0xffffffffU, 0xffffffffU}));
  EXPECT_EQ((converted<std::int32_t, std::uint32_t>({0xffffffffU, 7}, DType::kU32, DType::kI32)),
            (std::vector<std::int32_t>{0x7fffffff, 7}));
  EXPECT_EQ((converted<std::uint8_t>(values, DType::kI64, DType::kBool)),
            (std::vector<std::uint8_t>{1, 1, 1, 1, 0, 1, 1, 1, 1, 1}));
}

TEST(Convert, FloatsToIntegersGoTowardsZeroAndSaturate) {
  const double inf = std::numeric_limits<double>::infinity();
  const std::vector<double> values = {2.7,  -2.7,  127.9, 128,  -128.9,      -129,
                                      1e19, -1e19, inf,   -inf, std::nan("")};
  EXPECT_EQ((converted<std::int8_t>(values, DType::kF64, DType::kI8)),
            (std::vector<std::int8_t>{2, -2, 127, 127, -128, -128, 127, -128, 127, -128, 0}));
  constexpr auto kMin = std::numeric_limits<std::int64_t>::min();
  constexpr auto kMax = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ((converted<std::int64_t>(values, DType::kF64, DType::kI64)),
            (std::vector<std::int64_t>{2, -2, 127, 128, -128, -129, kMax, kMin, kMax, kMin, 0}));
  EXPECT_EQ((converted<std::uint32_t>(values, DType::kF64, DType::kU32)),
            (std::vector<std::uint32_t>{2, 0, 127, 128, 0, 0, 0xffffffffU, 0, 0xffffffffU, 0, 0}));
  EXPECT_EQ((converted<std::uint8_t, double>({0.25, 0.0, -0.0, std::nan("")}, DType::kF64, DType::kBool)),
            (std::vector<std::uint8_t>{1, 0, 0, 1}));
}

// Contiguous rows go another way than strided ones: the same bits must come out, odd lengths included.
TEST(Convert, ContiguousAndStridedGiveTheSameBits) {
  constexpr std::int64_t kCount = 1031;
  for (const DType to_dtype : {DType::kF16, DType::kBF16, DType::kF8E4M3, DType::kF32}) {
    for (const DType from_dtype : {DType::kF16, DType::kBF16, DType::kF8E4M3, DType::kF32}) {
      SCOPED_TRACE(testing::Message() << to_string(from_dtype) << " to " << to_string(to_dtype));
      const Tensor from = Tensor::host({kCount, 2}, from_dtype);
      std::uint32_t state = 1;
      for (std::int64_t i = 0; i < from.view().size_bytes(); ++i) {
        state = state * 1664525U + 1013904223U;
        from.view().data_as<std::uint8_t>()[i] = static_cast<std::uint8_t>(state >> 24);
      }
      const TensorView column = from.view().select(1, 1);
      const Tensor row = Tensor::host({kCount}, from_dtype);
      ASSERT_TRUE(convert(column, row.view()));
      const Tensor by_column = Tensor::host({kCount}, to_dtype);
      const Tensor by_row = Tensor::host({kCount}, to_dtype);
      ASSERT_TRUE(convert(column, by_column.view()));
      ASSERT_TRUE(convert(row.view(), by_row.view()));
      EXPECT_EQ(std::memcmp(by_column.view().data, by_row.view().data,
                            static_cast<std::size_t>(by_row.view().size_bytes())),
                0);
    }
  }
}

TEST(Convert, RefusesDifferentSizesAndOtherMemory) {
  const Tensor x = Tensor::host({2, 3}, DType::kF32);
  const Tensor y = Tensor::host({3, 2}, DType::kF32);
  const auto sizes = convert(x.view(), y.view());
  ASSERT_FALSE(sizes.has_value());
  EXPECT_EQ(sizes.error().to_string(), "InvalidArgument: convert: sizes differ: from [2, 3], to [3, 2]");
  TensorView on_gpu = x.view();
  on_gpu.device = {DeviceKind::kCuda, 1};
  const auto device = convert(x.view(), on_gpu);
  ASSERT_FALSE(device.has_value());
  EXPECT_EQ(device.error().to_string(), "InvalidArgument: convert: needs host memory, got cpu:0 and cuda:1");
}

}  // namespace
}  // namespace tandem
