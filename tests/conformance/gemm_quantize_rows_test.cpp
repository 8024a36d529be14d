// quantize_rows against a plain loop of the formula in its header, bit by bit.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <tandem/base/convert.hpp>
#include <tandem/gemm/quantize.hpp>
#include <vector>

#include "conformance/fused_harness.hpp"
#include "conformance/gemm_backends.hpp"
#include "harness/operands.hpp"
#include "harness/reference.hpp"

namespace tandem {
namespace {

using gemm::kScaleBlock;
using test::Guarded;

enum class Lies { kDense, kPadded, kSpread, kTransposed };

struct Case {
  Dims rows = {5};
  std::int64_t k = 64;
  DType in = DType::kBF16;
  DType out = DType::kF8E4M3;
  bool by_blocks = false;
  Lies input = Lies::kDense;
  Lies result = Lies::kDense;
  float magnitude = 1;
};

std::string to_text(const Case& c) {
  return fmt::format("quantize_rows {} {}x{} -> {}{} lies {} {} magnitude {}", to_string(c.in),
                     to_string(c.rows), c.k, to_string(c.out), c.by_blocks ? " by blocks" : "",
                     static_cast<int>(c.input), static_cast<int>(c.result), c.magnitude);
}

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

/// Rows of every kind in turn: ordinary ones, zeros, and those with numbers that no scale helps.
float value_of(const Case& c, std::int64_t row, std::int64_t col) {
  const float ordinary = harness::generated_value(7, row * c.k + col) * c.magnitude;
  switch (row % 5) {
    case 1:
      return col % 2 == 0 ? 0.0F : -0.0F;
    case 2:
      return col % 7 == 3 ? (col % 2 == 0 ? kInfinity : -kInfinity) : col % 7 == 5 ? -kNaN : ordinary;
    case 3:
      return col % 3 == 0 ? kNaN : kInfinity;
    case 4:  // a wide range in one row
      return std::ldexp(ordinary, -static_cast<int>(col % 40));
    default:
      return ordinary;
  }
}

class QuantizeRows : public test::GemmTest {
 protected:
  void check(const Case& c) {
    SCOPED_TRACE(to_text(c));
    Dims sizes = c.rows;
    sizes.push_back(c.k);
    const Tensor input = values(c, sizes);
    const Dims scale_sizes = test::with_last(sizes, c.by_blocks ? gemm::num_scale_blocks(c.k) : 1);
    const Guarded a(*device_, layout_of(c.input, sizes), input);
    const Guarded out(*device_, layout_of(c.result, sizes), c.out);
    const Guarded scale(*device_, layout_of(c.result, scale_sizes), DType::kF32);
    const auto enqueued =
        gemm::quantize_rows({.input = a.view(), .out = out.view(), .scale = scale.view()}, *stream_);
    ASSERT_TRUE(enqueued) << enqueued.error().to_string();
    const auto done = stream_->synchronize();
    ASSERT_TRUE(done) << done.error().to_string();
    for (const Guarded* const tensor : {&a, &out, &scale}) {
      tensor->download();
      EXPECT_TRUE(tensor->guards_are_whole());
    }
    compare(c, input, out, scale);
  }

 private:
  static Tensor values(const Case& c, const Dims& sizes) {
    Tensor wide = Tensor::host(sizes, DType::kF32);
    for (std::int64_t i = 0; i < wide.view().numel(); ++i)
      wide.view().data_as<float>()[i] = value_of(c, i / c.k, i % c.k);
    Tensor narrow = Tensor::host(sizes, c.in);
    EXPECT_TRUE(convert(wide.view(), narrow.view()));
    return narrow;
  }

  static Layout layout_of(Lies lies, const Dims& sizes) {
    if (lies == Lies::kSpread) return test::spread_out(sizes);
    Layout layout = test::dense(sizes);
    if (lies == Lies::kPadded) layout.strides = contiguous_strides(test::with_last(sizes, sizes.back() + 4));
    if (lies == Lies::kTransposed) {
      std::int64_t stride = 1;
      for (int d = 0; d < sizes.size(); ++d) {
        layout.strides[d] = stride;
        stride *= sizes[d];
      }
    }
    return layout;
  }

  static void compare(const Case& c, const Tensor& input, const Guarded& out, const Guarded& scale) {
    const float largest = c.out == DType::kF8E4M3 ? 448.0F : 57344.0F;
    const std::int64_t block = c.by_blocks ? kScaleBlock : c.k;
    const std::int64_t scales_a_row = scale.view().sizes.back();
    Tensor want = Tensor::host(input.sizes(), DType::kF32);
    Tensor want_scale = Tensor::host(scale.view().sizes, DType::kF32);
    for (std::int64_t i = 0; i < want_scale.view().numel(); ++i) {
      const std::int64_t row = i / scales_a_row;
      const std::int64_t first = i % scales_a_row * block;
      const std::int64_t last = std::min(first + block, c.k);
      float amax = 0;
      for (std::int64_t col = first; col < last; ++col) {
        const auto value = std::abs(static_cast<float>(element_as_f64(input.view(), row * c.k + col)));
        if (std::isfinite(value)) amax = std::max(amax, value);
      }
      const float one = amax == 0 ? 1.0F : std::max(amax, largest * 0x1p-126F) / largest;
      EXPECT_TRUE(std::isnormal(one)) << one;
      want_scale.view().data_as<float>()[i] = one;
      for (std::int64_t col = first; col < last; ++col) {
        const auto value = static_cast<float>(element_as_f64(input.view(), row * c.k + col));
        want.view().data_as<float>()[row * c.k + col] = std::isnan(value) ? kNaN : value / one;
      }
    }
    Tensor rounded = Tensor::host(input.sizes(), c.out);
    ASSERT_TRUE(convert(want.view(), rounded.view()));
    expect_same_bits(scale, want_scale, "scale");
    expect_same_bits(out, rounded, "out");
  }

  static void expect_same_bits(const Guarded& got, const Tensor& want, const char* name) {
    Tensor dense = Tensor::host(want.sizes(), want.dtype());
    ASSERT_TRUE(convert(got.host(), dense.view()));
    const auto* const x = dense.view().data_as<const std::byte>();
    const auto* const y = want.view().data_as<const std::byte>();
    const auto num_bytes = static_cast<std::size_t>(want.view().size_bytes());
    if (num_bytes == 0 || std::memcmp(x, y, num_bytes) == 0) return;
    const auto at =
        static_cast<std::int64_t>(std::mismatch(x, x + num_bytes, y).first - x) / size_bytes(want.dtype());
    FAIL() << fmt::format("{}: element {} is {}, need {}", name, at, element_as_f64(dense.view(), at),
                          element_as_f64(want.view(), at));
  }
};
INSTANTIATE_TEST_SUITE_P(Backend, QuantizeRows, ::testing::ValuesIn(test::gemm_backends()),
                         test::gemm_backend_name);

constexpr DType kInTypes[] = {DType::kF32, DType::kBF16, DType::kF16};
constexpr DType kOutTypes[] = {DType::kF8E4M3, DType::kF8E5M2};

TEST_P(QuantizeRows, EveryTypeAndSize) {
  for (const DType in : kInTypes) {
    for (const DType out : kOutTypes) {
      for (const std::int64_t k : {0, 1, 2, 7, 96, 127, 128, 129, 256, 260, 1023, 4096}) {
        for (const bool by_blocks : {false, true}) {
          check({.rows = {11}, .k = k, .in = in, .out = out, .by_blocks = by_blocks});
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST_P(QuantizeRows, EveryStride) {
  constexpr Lies kAll[] = {Lies::kDense, Lies::kPadded, Lies::kSpread, Lies::kTransposed};
  for (const Lies input : kAll) {
    for (const Lies result : kAll) {
      for (const Dims& rows : {Dims{}, Dims{1}, Dims{2, 3}, Dims{2, 1, 3, 2}, Dims{3, 0}}) {
        for (const std::int64_t k : {132, 259}) {
          for (const bool by_blocks : {false, true}) {
            check({.rows = rows, .k = k, .by_blocks = by_blocks, .input = input, .result = result});
            if (HasFatalFailure()) return;
          }
        }
      }
    }
  }
}

// More than a GPU's registers hold, by vectors and one by one.
TEST_P(QuantizeRows, LongRows) {
  for (const DType in : kInTypes) {
    for (const std::int64_t k : {16384, 16388, 20001})
      check({.rows = {6}, .k = k, .in = in, .out = DType::kF8E5M2});
  }
}

// From rows whose scale would be subnormal, or 0, to those that come near infinity.
TEST_P(QuantizeRows, EveryMagnitude) {
  for (const DType in : kInTypes) {
    for (const DType out : kOutTypes) {
      for (const float magnitude : {0x1p-149F, 0x1p-140F, 0x1p-126F, 0x1p-120F, 0x1p-110F, 0x1p-24F, 0x1p-9F,
                                    448.0F, 0x1p15F, 0x1p127F})
        check({.rows = {25}, .k = 200, .in = in, .out = out, .magnitude = magnitude});
    }
  }
}

// An input that is read backwards, and one row that all share.
TEST_P(QuantizeRows, StridesOfAnySign) {
  const Guarded a(*device_, test::dense({4, 256}), test::generated({4, 256}, DType::kF32, 1));
  TensorView backwards = a.view();
  backwards.data = backwards.data_as<float>() + a.view().numel() - 1;
  backwards.strides = {-256, -1};
  TensorView shared = a.view();
  shared.strides[0] = 0;
  const Guarded out(*device_, {4, 256}, DType::kF8E4M3);
  const Guarded scale(*device_, {4, 1}, DType::kF32);
  std::vector<float> scales;
  for (const TensorView& input : {backwards, shared}) {
    const auto enqueued =
        gemm::quantize_rows({.input = input, .out = out.view(), .scale = scale.view()}, *stream_);
    ASSERT_TRUE(enqueued) << enqueued.error().to_string();
    ASSERT_TRUE(stream_->synchronize());
    scale.download();
    for (int row = 0; row < 4; ++row) scales.push_back(static_cast<float>(scale.at(row)));
  }
  for (int row = 4; row < 8; ++row) EXPECT_EQ(scales[static_cast<std::size_t>(row)], scales[3]);
  EXPECT_NE(scales[0], scales[3]);
}

// Each element is what it was, to within the rounding of its type.
TEST_P(QuantizeRows, TheProductWithTheScaleIsTheInput) {
  for (const DType dtype : kOutTypes) {
    const Tensor input = test::generated({64, 256}, DType::kBF16, 3);
    const Guarded a(*device_, test::dense({64, 256}), input);
    const Guarded out(*device_, {64, 256}, dtype);
    const Guarded scale(*device_, {64, 2}, DType::kF32);
    ASSERT_TRUE(gemm::quantize_rows({.input = a.view(), .out = out.view(), .scale = scale.view()}, *stream_));
    ASSERT_TRUE(stream_->synchronize());
    out.download();
    scale.download();
    for (std::int64_t i = 0; i < 64 * 256; ++i) {
      const double need = element_as_f64(input.view(), i);
      const double got = out.at(i) * scale.at(i / kScaleBlock);
      ASSERT_NEAR(got, need, std::abs(need) * harness::unit_roundoff(dtype) * 1.01 + 0x1p-17) << i;
    }
  }
}

}  // namespace
}  // namespace tandem
