// scaled_matmul against a loop in the order of the header: tandem's own kernels have its bits, for every kind
// of scale. A vendor's library adds in an order of its own and comes close.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <deque>
#include <optional>
#include <string>
#include <tandem/base/convert.hpp>
#include <tandem/gemm/scaled_mm.hpp>
#include <vector>

#include "conformance/fused_harness.hpp"
#include "conformance/gemm_backends.hpp"

namespace tandem {
namespace {

using gemm::kScaleBlock;
using test::Guarded;

enum class Given { kNothing, kNumber, kOuter, kBlocks, kBlocksOfBoth };

struct Case {
  Dims rows = {40};
  std::int64_t n = 72;
  std::int64_t k = 64;
  DType a = DType::kF8E4M3;
  DType b = DType::kF8E4M3;
  DType out = DType::kBF16;
  Given a_scale = Given::kNumber;
  Given b_scale = Given::kNumber;
  std::optional<DType> bias = {};
  bool result_scale = false;
  bool addend = false;
  bool fast_accum = false;
  bool spread = false;          ///< no tensor is contiguous
  bool b_column_major = false;  ///< as weights are stored
  float magnitude = 1;          ///< of scales
};

std::string to_text(const Case& c) {
  return fmt::format("{} {}x{} * {} [{}] -> {} scales {} {}{}{}{}{}{}", to_string(c.a), to_string(c.rows),
                     c.k, to_string(c.b), c.n, to_string(c.out), static_cast<int>(c.a_scale),
                     static_cast<int>(c.b_scale), c.bias ? " bias " + std::string(to_string(*c.bias)) : "",
                     c.result_scale ? " result_scale" : "", c.addend ? " addend" : "",
                     c.spread ? " spread" : "", c.b_column_major ? " b column-major" : "");
}

std::int64_t blocks_of(std::int64_t size) {
  return (size + kScaleBlock - 1) / kScaleBlock;
}

/// f32 values of a tensor, row-major.
struct Values {
  std::vector<float> all;
  std::int64_t across = 1;
  [[nodiscard]] bool is_given() const { return !all.empty(); }
  [[nodiscard]] float at(std::int64_t row, std::int64_t col) const {
    return all[static_cast<std::size_t>(row * across + col)];
  }
};

Values values_of(const Tensor& tensor) {
  Values values;
  const std::int64_t count = tensor.view().numel();
  values.across = tensor.view().dim() == 0 ? 1 : tensor.view().sizes.back();
  for (std::int64_t i = 0; i < count; ++i)
    values.all.push_back(static_cast<float>(element_as_f64(tensor.view(), i)));
  return values;
}

class GemmScaledBits : public test::GemmTest {
 protected:
  void check(const Case& c) {
    SCOPED_TRACE(to_text(c));
    make(c);
    const auto problem = gemm::problem_of(args_);
    ASSERT_TRUE(problem) << problem.error().to_string();
    const auto enqueued = gemm::scaled_matmul(args_, *stream_);
    if (!enqueued && enqueued.error().text().find("has no scales along k yet") != std::string::npos) return;
    ASSERT_TRUE(enqueued) << enqueued.error().to_string();
    const auto done = stream_->synchronize();
    ASSERT_TRUE(done) << done.error().to_string();
    out_->download();
    EXPECT_TRUE(out_->guards_are_whole());
    compare(c);
  }

 private:
  [[nodiscard]] Layout layout_of(const Case& c, const Dims& sizes) const {
    return c.spread ? test::spread_out(sizes) : test::dense(sizes);
  }

  TensorView add(const Layout& layout, const Tensor& values, Values& kept) {
    kept = values_of(values);
    return tensors_.emplace_back(*device_, layout, values).view();
  }

  void make(const Case& c) {
    tensors_.clear();
    a_ = b_ = a_scale_ = b_scale_ = bias_ = result_scale_ = addend_ = Values();
    args_ = {};
    Dims a_sizes = c.rows;
    a_sizes.push_back(c.k);
    const Dims out_sizes = test::with_last(a_sizes, c.n);
    args_.a = add(layout_of(c, a_sizes), test::generated(a_sizes, c.a, 1), a_);
    Layout right = layout_of(c, {c.k, c.n});
    if (c.b_column_major) right.strides = {1, c.k};
    args_.b = add(right, test::generated({c.k, c.n}, c.b, 2), b_);
    make_scales(c, a_sizes);
    if (c.bias) args_.bias = add(layout_of(c, {c.n}), test::generated({c.n}, *c.bias, 5), bias_);
    if (c.result_scale)
      args_.result_scale = add(test::dense({1}), test::generated_scale({1}, 6), result_scale_);
    if (c.addend)
      args_.addend = add(layout_of(c, out_sizes), test::generated(out_sizes, DType::kF32, 7), addend_);
    args_.fast_accum = c.fast_accum;
    args_.out = out_.emplace(*device_, layout_of(c, out_sizes), c.out).view();
  }

  void make_scales(const Case& c, const Dims& a_sizes) {
    const auto add_scale = [&](const Dims& sizes, int seed, Values& kept) {
      return add(layout_of(c, sizes), test::generated_scale(sizes, seed, c.magnitude), kept);
    };
    if (c.a_scale != Given::kNothing) {
      const bool by_row = c.a_scale == Given::kOuter;
      args_.a_scale = add_scale(
          c.a_scale == Given::kNumber ? Dims{1} : test::with_last(a_sizes, by_row ? 1 : blocks_of(c.k)), 3,
          a_scale_);
    }
    if (c.b_scale == Given::kNothing) return;
    const std::int64_t down = c.b_scale == Given::kNumber || c.b_scale == Given::kOuter ? 1 : blocks_of(c.k);
    const std::int64_t across = c.b_scale == Given::kNumber         ? 1
                                : c.b_scale == Given::kBlocksOfBoth ? blocks_of(c.n)
                                                                    : c.n;
    args_.b_scale = add_scale({down, across}, 4, b_scale_);
  }

  [[nodiscard]] float scale_of_a(std::int64_t row, std::int64_t block) const {
    if (a_scale_.all.size() <= 1) return a_scale_.is_given() ? a_scale_.all[0] : 1.0F;
    return a_scale_.at(row, a_scale_.across == 1 ? 0 : block);
  }
  [[nodiscard]] float scale_of_b(const Case& c, std::int64_t col, std::int64_t block) const {
    if (b_scale_.all.size() <= 1) return b_scale_.is_given() ? b_scale_.all[0] : 1.0F;
    const bool has_blocks = c.b_scale == Given::kBlocks || c.b_scale == Given::kBlocksOfBoth;
    return b_scale_.at(has_blocks ? block : 0, c.b_scale == Given::kBlocksOfBoth ? col / kScaleBlock : col);
  }

  /// The order of a CPU.
  static bool adds_pairs(const Case& c) {
    return GetParam().kind == DeviceKind::kCpu && c.a == DType::kBF16 && c.b == DType::kBF16;
  }

  /// The element before its rounding, and the sum of the terms' magnitudes.
  [[nodiscard]] std::pair<float, double> element(const Case& c, std::int64_t row, std::int64_t col) const {
    const bool along_k = c.a_scale >= Given::kBlocks || c.b_scale >= Given::kBlocks;
    float sum = 0;
    float chain = 0;
    double magnitude = 0;
    for (std::int64_t i = 0; i < c.k; ++i) {
      const std::int64_t k = adds_pairs(c) && (i ^ 1) < c.k ? i ^ 1 : i;
      chain = std::fma(a_.at(row, k), b_.at(k, col), chain);
      const std::int64_t block = k / kScaleBlock;
      if (!GetParam().adds_in_order)
        magnitude += std::abs(double{a_.at(row, k)} * double{b_.at(k, col)} * double{scale_of_a(row, block)} *
                              double{scale_of_b(c, col, block)});
      if (!along_k || ((i + 1) % kScaleBlock != 0 && i + 1 < c.k)) continue;
      const float scale = scale_of_a(row, block) * scale_of_b(c, col, block);
      const float scaled = chain * scale;
      sum = sum + scaled;
      chain = 0;
    }
    if (!along_k) {
      sum = chain;
      if (a_scale_.is_given()) sum = sum * scale_of_a(row, 0);
      if (b_scale_.is_given()) sum = sum * scale_of_b(c, col, 0);
    }
    if (bias_.is_given()) sum = sum + bias_.all[static_cast<std::size_t>(col)];
    if (result_scale_.is_given()) sum = sum * result_scale_.all[0];
    if (addend_.is_given()) sum = sum + addend_.at(row, col);
    return {sum, magnitude};
  }

  void compare(const Case& c) const {
    const std::int64_t rows = args_.out.numel() / c.n;
    Tensor want = Tensor::host({rows, c.n}, DType::kF32);
    std::vector<double> slack;
    for (std::int64_t i = 0; i < rows * c.n; ++i) {
      const auto [value, magnitude] = element(c, i / c.n, i % c.n);
      want.view().data_as<float>()[i] = value;
      slack.push_back(magnitude * 0x1p-9 + 1e-6);
    }
    Tensor rounded = Tensor::host({rows, c.n}, c.out);
    ASSERT_TRUE(convert(want.view(), rounded.view()));
    const double last_bit = c.out == DType::kF8E5M2   ? 0x1p-2
                            : c.out == DType::kF8E4M3 ? 0x1p-3
                            : c.out == DType::kBF16   ? 0x1p-8
                                                      : 0x1p-10;
    for (std::int64_t i = 0; i < rows * c.n; ++i) {
      const double got = element_as_f64(out_->host(), i);
      const double need = element_as_f64(rounded.view(), i);
      if (GetParam().adds_in_order) {
        ASSERT_EQ(got, need) << "element " << i;
      } else if (got != need) {  // infinities have no distance
        ASSERT_NEAR(got, need, slack[static_cast<std::size_t>(i)] + std::abs(need) * last_bit + 0x1p-9)
            << "element " << i;
      }
    }
  }

  gemm::ScaledMmArgs args_;
  std::deque<Guarded> tensors_;
  std::optional<Guarded> out_;
  Values a_, b_, a_scale_, b_scale_, bias_, result_scale_, addend_;
};
INSTANTIATE_TEST_SUITE_P(Backend, GemmScaledBits, ::testing::ValuesIn(test::gemm_backends()),
                         test::gemm_backend_name);

constexpr DType kOutTypes[] = {DType::kF32, DType::kBF16, DType::kF16, DType::kF8E4M3, DType::kF8E5M2};

TEST_P(GemmScaledBits, EveryPairOfScales) {
  constexpr Given kAll[] = {Given::kNothing, Given::kNumber, Given::kOuter, Given::kBlocks,
                            Given::kBlocksOfBoth};
  for (const Given a : kAll) {
    if (a == Given::kBlocksOfBoth) continue;
    for (const Given b : kAll) {
      for (const std::int64_t k : {256, 336}) {
        check({.rows = {12}, .n = 136, .k = k, .a_scale = a, .b_scale = b, .b_column_major = true});
        check({.rows = {2, 5},
               .n = 30,
               .k = k - 5,
               .out = DType::kF32,
               .a_scale = a,
               .b_scale = b,
               .spread = true});
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_P(GemmScaledBits, EveryTypeAndEpilogue) {
  int call = 0;
  for (const DType a : {DType::kF8E4M3, DType::kF8E5M2, DType::kBF16, DType::kF16}) {
    for (const DType b : {DType::kF8E4M3, DType::kF8E5M2, DType::kBF16, DType::kF16}) {
      if (!(is_f8(a) && is_f8(b)) && a != b) continue;
      for (const DType out : kOutTypes) {
        for (const bool outer : {false, true}) {
          ++call;
          check({.a = a,
                 .b = b,
                 .out = out,
                 .a_scale = Given::kOuter,
                 .b_scale = outer ? Given::kOuter : Given::kNumber,
                 .bias = call % 3 == 0 ? std::nullopt : std::optional(kOutTypes[call % 5]),
                 .result_scale = call % 4 == 1,
                 .addend = call % 5 == 2,
                 .fast_accum = call % 7 == 0,
                 .b_column_major = call % 2 == 0});
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

// One product of k = 1 has the bits of one number: so every rounding, saturated ones too.
TEST_P(GemmScaledBits, RoundsOnceAndSaturates) {
  for (const DType out : kOutTypes) {
    for (const float magnitude : {0x1p-13F, 0x1p-8F, 0x1p-4F, 1.0F, 0x1p4F, 0x1p9F, 0x1p20F})
      check({.rows = {64},
             .n = 64,
             .k = 1,
             .a = DType::kBF16,
             .b = DType::kBF16,
             .out = out,
             .a_scale = Given::kOuter,
             .magnitude = magnitude});
  }
}

TEST_P(GemmScaledBits, NaNHasOneForm) {
  constexpr std::pair<DType, std::uint32_t> kForms[] = {{DType::kF32, 0x7fc00000U},
                                                        {DType::kBF16, 0x7fc0U},
                                                        {DType::kF16, 0x7e00U},
                                                        {DType::kF8E4M3, 0x7fU},
                                                        {DType::kF8E5M2, 0x7eU}};
  for (const auto& [dtype, form] : kForms) {
    const Guarded a(*device_, {16, 16}, DType::kF8E4M3);
    const Guarded b(*device_, test::dense({16, 16}), test::generated({16, 16}, DType::kF8E4M3, 1));
    const Guarded out(*device_, {16, 16}, dtype);
    const Guarded scale(*device_, test::dense({1}), test::generated_scale({1}, 2));
    // Outputs begin as NaN, and so does a.
    ASSERT_TRUE(gemm::scaled_matmul(
        {.a = a.view(), .b = b.view(), .a_scale = scale.view(), .b_scale = scale.view(), .out = out.view()},
        *stream_));
    ASSERT_TRUE(stream_->synchronize());
    out.download();
    for (std::size_t i = 0; i < 256; ++i) {
      std::uint32_t bits = 0;
      std::memcpy(&bits,
                  out.host().data_as<const std::byte>() + static_cast<std::int64_t>(i) * size_bytes(dtype),
                  static_cast<std::size_t>(size_bytes(dtype)));
      if (GetParam().adds_in_order) {
        ASSERT_EQ(bits, form) << to_string(dtype);
      }
      ASSERT_TRUE(std::isnan(element_as_f64(out.host(), static_cast<std::int64_t>(i)))) << to_string(dtype);
    }
  }
}

}  // namespace
}  // namespace tandem
