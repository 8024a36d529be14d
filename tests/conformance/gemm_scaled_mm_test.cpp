// scaled_matmul against sums in f64 from the same bits: shapes, types, strides, scales, bias, addend. Guards
// around every buffer; outputs start as NaN.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <deque>
#include <limits>
#include <optional>
#include <string>
#include <tandem/gemm/scaled_mm.hpp>
#include <vector>

#include "conformance/fused_harness.hpp"
#include "conformance/gemm_backends.hpp"
#include "harness/reference.hpp"

namespace tandem {
namespace {

using test::Guarded;
using test::with_last;

struct Case {
  Dims a = {5, 7};  ///< [..., k]
  std::int64_t n = 9;
  DType a_type = DType::kF8E4M3;
  DType b_type = DType::kF8E4M3;
  DType out = DType::kBF16;
  bool a_rowwise = false;
  bool b_rowwise = false;
  std::optional<Dims> a_scale = {};  ///< its sizes, if neither one element nor row-wise
  std::optional<Dims> b_scale = {};
  bool bias = false;
  bool result_scale = false;
  bool addend = false;
  bool spread = false;      ///< no tensor is contiguous
  bool front_last = false;  ///< the first dim of a and out is the innermost but one in memory
  bool b_column_major = false;
};

std::string to_text(const Case& c) {
  const auto scale = [](const char* name, const std::optional<Dims>& sizes) {
    return sizes ? fmt::format(" {} {}", name, to_string(*sizes)) : "";
  };
  return fmt::format(
      "{} {} * {} [{}] -> {}{}{}{}{}{}{}{}{}{}{}", to_string(c.a_type), to_string(c.a), to_string(c.b_type),
      c.n, to_string(c.out), c.a_rowwise ? " a row-wise" : "", c.b_rowwise ? " b row-wise" : "",
      c.bias ? " bias" : "", c.result_scale ? " result_scale" : "", c.addend ? " addend" : "",
      c.spread ? " spread" : "", c.front_last ? " front last" : "", c.b_column_major ? " b column-major" : "",
      scale("a_scale", c.a_scale), scale("b_scale", c.b_scale));
}

class GemmScaledMm : public test::GemmTest {
 protected:
  [[nodiscard]] static Layout layout_of(const Case& c, const Dims& sizes) {
    if (!c.front_last || sizes.size() < 3) return c.spread ? test::spread_out(sizes) : test::dense(sizes);
    Dims moved = sizes;
    moved.insert(sizes.size() - 2, moved.erase(0));
    Dims strides = contiguous_strides(moved);
    strides.insert(0, strides.erase(sizes.size() - 2));
    return {sizes, strides};
  }

  gemm::ScaledMmArgs make(const Case& c) {
    tensors_.clear();
    values_ = {};
    const auto add = [&](const Layout& layout, const Tensor& values, auto& on_host) {
      const Guarded& added = tensors_.emplace_back(*device_, layout, values);
      on_host = added.host();
      return added.view();
    };
    const auto add_values = [&](const Layout& layout, DType dtype, auto& on_host) {
      return add(layout, test::generated(layout.sizes, dtype, static_cast<int>(tensors_.size())), on_host);
    };
    const auto add_scale = [&](const Layout& layout, auto& on_host) {
      return add(layout, test::generated_scale(layout.sizes, static_cast<int>(tensors_.size())), on_host);
    };
    gemm::ScaledMmArgs args;
    args.a = add_values(layout_of(c, c.a), c.a_type, values_.a);
    Layout right = c.spread ? test::spread_out({c.a.back(), c.n}) : test::dense({c.a.back(), c.n});
    if (c.b_column_major) right.strides = {1, c.a.back()};
    args.b = add_values(right, c.b_type, values_.b);
    const std::optional<Dims> a_scale = c.a_rowwise ? with_last(c.a, 1) : c.a_scale;
    const std::optional<Dims> b_scale = c.b_rowwise ? Dims{1, c.n} : c.b_scale;
    args.a_scale = add_scale(a_scale ? layout_of(c, *a_scale) : test::dense({1}), values_.a_scale);
    args.b_scale = add_scale(b_scale ? layout_of(c, *b_scale) : test::dense({}), values_.b_scale);
    if (c.bias) args.bias = add_values(layout_of(c, {c.n}), DType::kF16, values_.bias);
    if (c.result_scale) args.result_scale = add_scale(test::dense({1}), values_.result_scale);
    if (c.addend) args.addend = add_values(layout_of(c, with_last(c.a, c.n)), DType::kF32, values_.addend);
    values_.by_tensor_cores = !GetParam().adds_in_order;
    values_.scale_block = gemm::kScaleBlock;
    args.out = out_.emplace(*device_, layout_of(c, with_last(c.a, c.n)), c.out).view();
    return args;
  }

  void run(const gemm::ScaledMmArgs& args) {
    const auto enqueued = gemm::scaled_matmul(args, *stream_);
    ASSERT_TRUE(enqueued) << enqueued.error().to_string();
    const auto done = stream_->synchronize();
    ASSERT_TRUE(done) << done.error().to_string();
    out_->download();
  }

  void check(const Case& c) {
    SCOPED_TRACE(to_text(c));
    const gemm::ScaledMmArgs args = make(c);
    // Of the operands as they are before the op.
    const harness::ProductReference reference(values_);
    run(args);
    if (HasFatalFailure()) return;
    harness::Wrong wrong;
    reference.compare(out_->host(), "out", wrong);
    ASSERT_EQ(wrong.count, 0) << wrong.first;
    EXPECT_TRUE(out_->guards_are_whole());
  }

  std::deque<Guarded> tensors_;
  harness::ProductTensors values_;  ///< those of tensors_, on the host
  std::optional<Guarded> out_;
};
INSTANTIATE_TEST_SUITE_P(Backend, GemmScaledMm, ::testing::ValuesIn(test::gemm_backends()),
                         test::gemm_backend_name);

TEST_P(GemmScaledMm, EveryType) {
  for (const DType a : {DType::kF8E4M3, DType::kF8E5M2}) {
    for (const DType b : {DType::kF8E4M3, DType::kF8E5M2}) {
      for (const DType out : {DType::kF32, DType::kBF16, DType::kF16, DType::kF8E4M3, DType::kF8E5M2})
        check({.a_type = a, .b_type = b, .out = out, .a_rowwise = true, .bias = true});
    }
  }
  for (const DType plain : {DType::kF32, DType::kBF16, DType::kF16}) {
    for (const bool spread : {false, true})
      check({.a = {3, 5, 7},
             .a_type = plain,
             .b_type = plain,
             .b_rowwise = true,
             .addend = true,
             .spread = spread});
  }
}

TEST_P(GemmScaledMm, EveryOption) {
  for (unsigned bits = 0; bits < 256; ++bits) {
    const auto has = [&](unsigned bit) { return (bits >> bit & 1U) != 0; };
    check({.a = {2, 3, 4, 5},
           .n = 6,
           .a_rowwise = has(0),
           .b_rowwise = has(1),
           .bias = has(2),
           .result_scale = has(3),
           .addend = has(4),
           .spread = has(5),
           .front_last = has(6),
           .b_column_major = has(7)});
    if (HasFatalFailure()) return;
  }
}

TEST_P(GemmScaledMm, EverySmallSize) {
  for (std::int64_t m = 0; m < 8; ++m) {
    for (std::int64_t n = 0; n < 8; ++n) {
      for (std::int64_t k = 0; k < 8; ++k) {
        check(
            {.a = {m, k}, .n = n, .a_rowwise = true, .b_rowwise = true, .bias = true, .addend = k % 2 == 0});
        if (HasFatalFailure()) return;
      }
    }
  }
  check({.a = {9}, .n = 4, .a_rowwise = true});
}

TEST_P(GemmScaledMm, MoreThanOneBlock) {
  for (const bool front_last : {false, true}) {
    for (const auto& [rows, n, k] :
         {std::tuple(401, 30, 40), std::tuple(7, 530, 40), std::tuple(7, 30, 1100)}) {
      check({.a = {2, rows, k},
             .n = n,
             .a_rowwise = true,
             .b_rowwise = true,
             .bias = true,
             .front_last = front_last});
      check({.a = {2, rows, k},
             .n = n,
             .a_type = DType::kBF16,
             .b_type = DType::kBF16,
             .out = DType::kF32,
             .addend = true,
             .front_last = front_last});
    }
  }
}

// What the fused ops build on: the rows of a chunk have the bits that they have in the whole.
TEST_P(GemmScaledMm, BitsDoNotDependOnTheSplitOfTheRows) {
  if (!GetParam().adds_in_order) GTEST_SKIP() << GetParam().name << " adds in an order of its own";
  const Case by_rows{.a = {400, 200}, .n = 90, .out = DType::kF32, .a_rowwise = true};
  Case by_blocks{.a = {400, 200}, .n = 90, .out = DType::kF32};
  by_blocks.a_scale = {400, 2};
  by_blocks.b_scale = {2, 1};
  for (const Case& c : {by_rows, by_blocks}) {
    const gemm::ScaledMmArgs args = make(c);
    run(args);
    const std::vector<std::byte> whole = out_->bytes();
    out_->poison();
    for (const auto& [offset, rows] : {std::pair(0, 1), std::pair(1, 199), std::pair(200, 200)}) {
      gemm::ScaledMmArgs part = args;
      part.a = args.a.narrow(0, offset, rows);
      part.a_scale = args.a_scale.narrow(0, offset, rows);
      part.out = args.out.narrow(0, offset, rows);
      run(part);
    }
    EXPECT_EQ(out_->bytes(), whole) << to_text(c);
  }
}

// Scales by [rows, 1] and by [rows, kb] may have a's dims or two.
TEST_P(GemmScaledMm, EveryPairOfScales) {
  for (const std::int64_t k : {0, 1, 127, 128, 129, 300}) {
    for (const std::int64_t n : {9, 130}) {
      const std::int64_t kb = gemm::num_scale_blocks(k);
      const std::int64_t nb = gemm::num_scale_blocks(n);
      for (const Dims& a_scale : {Dims{1}, Dims{2, 3, 1}, Dims{2, 3, kb}, Dims{6, 1}, Dims{6, kb}}) {
        for (const Dims& b_scale : {Dims{1}, Dims{1, n}, Dims{kb, n}, Dims{kb, nb}}) {
          Case c{.a = {2, 3, k}, .n = n, .a_scale = a_scale, .b_scale = b_scale, .bias = true};
          check(c);
          c.spread = true;
          c.a_type = c.b_type = DType::kBF16;
          c.addend = true;
          check(c);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST_P(GemmScaledMm, ScalesAlongKOfEveryTypeAndOrder) {
  const Dims a_scale = {2, 4, 2, 2};
  for (const Dims& b_scale : {Dims{2, 2}, Dims{2, 140}}) {
    for (unsigned bits = 0; bits < 16; ++bits) {
      const auto has = [&](unsigned bit) { return (bits >> bit & 1U) != 0; };
      const DType a = has(0) ? DType::kF8E5M2 : DType::kF8E4M3;
      check({.a = {2, 4, 2, 200},
             .n = 140,
             .a_type = a,
             .out = has(1) ? DType::kF32 : DType::kF8E5M2,
             .a_scale = a_scale,
             .b_scale = b_scale,
             .result_scale = true,
             .front_last = has(2),
             .b_column_major = has(3)});
      if (HasFatalFailure()) return;
    }
    // What is read in place.
    for (const DType plain : {DType::kF32, DType::kBF16, DType::kF16})
      check({.a = {16, 200},
             .n = 140,
             .a_type = plain,
             .b_type = plain,
             .a_scale = Dims{16, 2},
             .b_scale = b_scale});
  }
}

TEST_P(GemmScaledMm, ScalesAlongKOverMoreThanOneBlock) {
  for (const auto& [rows, n, k] :
       {std::tuple(401, 30, 140), std::tuple(7, 530, 140), std::tuple(7, 30, 1100)}) {
    const std::int64_t kb = gemm::num_scale_blocks(k);
    for (const std::int64_t columns : {std::int64_t{n}, gemm::num_scale_blocks(n)})
      check({.a = {2, rows, k}, .n = n, .a_scale = Dims{2, rows, kb}, .b_scale = Dims{kb, columns}});
  }
}

TEST_P(GemmScaledMm, AScaleMayBeLeftOutBesideOneAlongK) {
  for (const bool of_a : {false, true}) {
    gemm::ScaledMmArgs args = make({.a = {5, 300}, .a_scale = Dims{5, 3}, .b_scale = Dims{3, 1}});
    (of_a ? args.a_scale : args.b_scale) = {};
    (of_a ? values_.a_scale : values_.b_scale).reset();
    const harness::ProductReference reference(values_);
    run(args);
    harness::Wrong wrong;
    reference.compare(out_->host(), "out", wrong);
    EXPECT_EQ(wrong.count, 0) << wrong.first;
  }
}

// Each block of k is one chain of fused multiply-adds. Its product with both scales is rounded before it is
// added.
TEST_P(GemmScaledMm, ScalesAlongKHaveTheBitsOfTheirDefinition) {
  if (!GetParam().adds_in_order) GTEST_SKIP() << GetParam().name << " adds in an order of its own";
  const std::int64_t m = 7;
  const std::int64_t n = 140;
  const std::int64_t k = 1300;
  const gemm::ScaledMmArgs args =
      make({.a = {m, k}, .n = n, .out = DType::kF32, .a_scale = Dims{m, 11}, .b_scale = Dims{11, 2}});
  run(args);
  const auto at = [](const TensorView& view, std::int64_t row, std::int64_t column) {
    return static_cast<float>(element_as_f64(view, row * view.size(1) + column));
  };
  for (std::int64_t row = 0; row < m; ++row) {
    for (std::int64_t column = 0; column < n; ++column) {
      float sum = 0;
      for (std::int64_t block = 0; block < k; block += gemm::kScaleBlock) {
        float partial = 0;
        for (std::int64_t i = block; i < std::min(block + gemm::kScaleBlock, k); ++i)
          partial = std::fma(at(values_.a, row, i), at(values_.b, i, column), partial);
        const std::int64_t idx = block / gemm::kScaleBlock;
        const volatile float scale =
            at(*values_.a_scale, row, idx) * at(*values_.b_scale, idx, column / gemm::kScaleBlock);
        const volatile float scaled = partial * scale;
        sum += scaled;
      }
      ASSERT_EQ(static_cast<float>(out_->at(row * n + column)), sum) << row << ", " << column;
    }
  }
}

TEST_P(GemmScaledMm, WithoutScalesItIsThePlainProduct) {
  gemm::ScaledMmArgs args = make({.a = {60, 1500}, .n = 70, .a_type = DType::kBF16, .b_type = DType::kBF16});
  args.a_scale = {};
  args.b_scale = {};
  run(args);
  const std::vector<std::byte> scaled = out_->bytes();
  out_->poison();
  ASSERT_TRUE(gemm::mm({.a = args.a, .b = args.b, .out = args.out, .bias = {}}, *stream_));
  ASSERT_TRUE(stream_->synchronize());
  out_->download();
  EXPECT_EQ(out_->bytes(), scaled);
}

TEST_P(GemmScaledMm, AddsInPlaceAndSaturates) {
  const Case c = {.a = {4, 40}, .out = DType::kF32};
  gemm::ScaledMmArgs args = make(c);
  run(args);
  std::vector<double> once;
  for (std::int64_t i = 0; i < args.out.numel(); ++i) once.push_back(out_->at(i));
  args.addend = args.out;
  run(args);
  for (std::int64_t i = 0; i < args.out.numel(); ++i)
    EXPECT_EQ(out_->at(i), 2 * once[static_cast<std::size_t>(i)]);

  args = make({.a = {4, 40}, .out = DType::kF8E4M3});
  tensors_[2].fill([](std::int64_t) { return 1e6; });  // a's scale
  run(args);
  for (std::int64_t i = 0; i < args.out.numel(); ++i) {
    EXPECT_EQ(std::abs(out_->at(i)), 448) << once[static_cast<std::size_t>(i)];
  }
  tensors_[2].fill([](std::int64_t) { return std::numeric_limits<double>::quiet_NaN(); });
  run(args);
  for (std::int64_t i = 0; i < args.out.numel(); ++i) EXPECT_TRUE(std::isnan(out_->at(i)));
}

}  // namespace
}  // namespace tandem
