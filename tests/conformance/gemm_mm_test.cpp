// mm against sums in f64: shapes, types, strides, bias, accumulation. Guards around every buffer; outputs
// start as NaN.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <tandem/backend/backend.hpp>
#include <tandem/base/convert.hpp>
#include <tandem/gemm/mm.hpp>
#include <vector>

#include "support/guarded_bytes.hpp"

namespace tandem::testing {
namespace {

enum class Layout2d { kRows, kPaddedRows, kColumns, kSpread };
constexpr Layout2d kLayouts[] = {Layout2d::kRows, Layout2d::kPaddedRows, Layout2d::kColumns,
                                 Layout2d::kSpread};

// A matrix in guarded memory, with holes where the layout has some.
class Matrix {
 public:
  Matrix(std::int64_t rows, std::int64_t cols, DType dtype, Layout2d layout)
      : memory_((rows * cols * 6 + 16 * (rows + cols)) * size_bytes(dtype)) {
    view_ = memory_.view({rows, cols}, dtype);
    switch (layout) {
      case Layout2d::kRows:
        view_.strides = {cols, 1};
        break;
      case Layout2d::kPaddedRows:
        view_.strides = {cols + 3, 1};
        break;
      case Layout2d::kColumns:
        view_.strides = {1, rows + 2};
        break;
      case Layout2d::kSpread:
        view_.strides = {2 * cols + 1, 2};
        break;
    }
  }

  void fill(unsigned seed) {
    std::mt19937 random(seed);
    std::uniform_real_distribution<double> uniform(-2.0, 2.0);
    const Tensor values = Tensor::host(view_.sizes, DType::kF64);
    for (std::int64_t i = 0; i < view_.numel(); ++i) values.view().data_as<double>()[i] = uniform(random);
    ASSERT_TRUE(convert(values.view(), view_));
  }
  [[nodiscard]] const TensorView& view() const { return view_; }
  [[nodiscard]] double at(std::int64_t row, std::int64_t col) const {
    return element_as_f64(view_, row * view_.size(1) + col);
  }
  // Whether all bytes but the elements' are as they were made.
  [[nodiscard]] bool holes_are_whole() {
    std::vector<char> is_element(static_cast<std::size_t>(memory_.size_bytes_held()), 0);
    const std::int64_t width = size_bytes(view_.dtype);
    for (std::int64_t r = 0; r < view_.size(0); ++r) {
      for (std::int64_t c = 0; c < view_.size(1); ++c) {
        const std::int64_t at = (r * view_.stride(0) + c * view_.stride(1)) * width;
        std::memset(&is_element[static_cast<std::size_t>(at)], 1, static_cast<std::size_t>(width));
      }
    }
    for (std::int64_t i = 0; i < memory_.size_bytes_held(); ++i) {
      if (!is_element[static_cast<std::size_t>(i)] && memory_.data()[i] != std::byte{0xff}) return false;
    }
    return memory_.guards_are_whole();
  }
  [[nodiscard]] std::vector<std::byte> bytes() {
    return {memory_.data(), memory_.data() + memory_.size_bytes_held()};
  }

 private:
  GuardedBytes memory_;
  TensorView view_;
};

// Half a unit in the last place of 1, and the smallest normal number.
double epsilon_of(DType dtype) {
  return dtype == DType::kF32 ? 0x1p-24 : dtype == DType::kF16 ? 0x1p-11 : 0x1p-8;
}
double smallest_of(DType dtype) {
  return dtype == DType::kF16 ? 0x1p-14 : 0x1p-126;
}

struct Case {
  std::int64_t m, n, k;
  DType in = DType::kF32;
  DType out = DType::kF32;
  Layout2d a = Layout2d::kRows;
  Layout2d b = Layout2d::kRows;
  Layout2d c = Layout2d::kRows;
  bool bias = false;
  bool accumulate = false;
};

class GemmMm : public ::testing::Test {
 protected:
  void SetUp() override {
    device_ = open_device({DeviceKind::kCpu, 0}, Config{}).value();
    stream_ = device_->create_stream().value();
  }

  void check(const Case& c) {
    Matrix a(c.m, c.k, c.in, c.a);
    Matrix b(c.k, c.n, c.in, c.b);
    Matrix out(c.m, c.n, c.out, c.c);
    Matrix bias(1, c.n, c.out, c.c);
    a.fill(1);
    b.fill(2);
    bias.fill(3);
    Matrix before(c.m, c.n, c.out, c.c);
    if (c.accumulate) {
      out.fill(4);
      before.fill(4);
    }
    gemm::MmArgs args{
        .a = a.view(), .b = b.view(), .out = out.view(), .bias = {}, .accumulate = c.accumulate};
    if (c.bias) args.bias = bias.view().select(0, 0);
    const auto a_bytes = a.bytes();
    const auto b_bytes = b.bytes();
    const auto problem = gemm::problem_of(args);
    ASSERT_TRUE(problem) << problem.error().to_string();
    SCOPED_TRACE(gemm::to_string(*problem) + ", layouts " + std::to_string(static_cast<int>(c.a)) +
                 std::to_string(static_cast<int>(c.b)) + std::to_string(static_cast<int>(c.c)));
    const auto started = gemm::mm(args, *stream_);
    ASSERT_TRUE(started) << started.error().to_string();
    const auto finished = stream_->synchronize();
    ASSERT_TRUE(finished) << finished.error().to_string();
    ASSERT_TRUE(out.holes_are_whole());
    ASSERT_EQ(a.bytes(), a_bytes);
    ASSERT_EQ(b.bytes(), b_bytes);
    for (std::int64_t i = 0; i < c.m; ++i) {
      for (std::int64_t j = 0; j < c.n; ++j) {
        double sum = c.accumulate ? before.at(i, j) : 0.0;
        double magnitude = std::abs(sum);
        for (std::int64_t p = 0; p < c.k; ++p) {
          sum += a.at(i, p) * b.at(p, j);
          magnitude += std::abs(a.at(i, p) * b.at(p, j));
        }
        if (c.bias) {
          sum += bias.at(0, j);
          magnitude += std::abs(bias.at(0, j));
        }
        const double bound =
            static_cast<double>(c.k + 2) * 0x1p-24 * magnitude +
            (c.out == DType::kF32 ? 0.0
                                  : epsilon_of(c.out) * std::max(std::abs(sum) * 1.01, smallest_of(c.out)));
        ASSERT_LE(std::abs(out.at(i, j) - sum), bound)
            << "element " << i << ", " << j << " is " << out.at(i, j) << ", expected " << sum;
      }
    }
  }

  std::unique_ptr<Device> device_;
  std::unique_ptr<Stream> stream_;
};

struct Types {
  DType in;
  DType out;
};
constexpr Types kTypes[] = {{DType::kF32, DType::kF32},
                            {DType::kBF16, DType::kBF16},
                            {DType::kBF16, DType::kF32},
                            {DType::kF16, DType::kF16},
                            {DType::kF16, DType::kF32}};

TEST_F(GemmMm, AllSmallSizes) {
  for (std::int64_t m = 0; m < 10; ++m) {
    for (std::int64_t n = 0; n < 10; ++n) {
      for (std::int64_t k = 0; k < 10; ++k) {
        check({.m = m, .n = n, .k = k, .bias = (m + n + k) % 2 == 0});
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_F(GemmMm, SizesThatNothingDivides) {
  for (const Types& types : kTypes) {
    for (const auto& [m, n, k] :
         {std::tuple(1, 300, 200), std::tuple(300, 1, 200), std::tuple(97, 65, 1), std::tuple(101, 67, 259),
          std::tuple(13, 577, 31), std::tuple(9, 63, 1100)}) {
      check({.m = m, .n = n, .k = k, .in = types.in, .out = types.out, .bias = true});
      if (HasFatalFailure()) return;
    }
  }
}

TEST_F(GemmMm, AllLayouts) {
  for (const Types& types : kTypes) {
    for (const Layout2d a : kLayouts) {
      for (const Layout2d b : kLayouts) {
        for (const Layout2d out : kLayouts) {
          check({.m = 11,
                 .n = 35,
                 .k = 19,
                 .in = types.in,
                 .out = types.out,
                 .a = a,
                 .b = b,
                 .c = out,
                 .bias = true});
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST_F(GemmMm, AccumulatesIntoF32) {
  for (const DType in : {DType::kF32, DType::kBF16, DType::kF16}) {
    for (const Layout2d out : kLayouts) {
      for (const std::int64_t k : {0, 1, 40}) {
        check({.m = 14, .n = 70, .k = k, .in = in, .c = out, .bias = k == 1, .accumulate = true});
        if (HasFatalFailure()) return;
      }
    }
  }
}

// Slices of k that accumulate one after the other are one product, bit for bit.
TEST_F(GemmMm, SlicesOfKAddUpToTheWhole) {
  Matrix a(20, 90, DType::kBF16, Layout2d::kRows);
  Matrix b(90, 50, DType::kBF16, Layout2d::kColumns);
  Matrix whole(20, 50, DType::kF32, Layout2d::kRows);
  Matrix slices(20, 50, DType::kF32, Layout2d::kRows);
  a.fill(1);
  b.fill(2);
  ASSERT_TRUE(gemm::mm({.a = a.view(), .b = b.view(), .out = whole.view(), .bias = {}}, *stream_));
  for (const auto& [begin, size] : {std::pair(0, 7), std::pair(7, 50), std::pair(57, 33)}) {
    ASSERT_TRUE(gemm::mm({.a = a.view().narrow(1, begin, size),
                          .b = b.view().narrow(0, begin, size),
                          .out = slices.view(),
                          .bias = {},
                          .accumulate = begin > 0},
                         *stream_));
  }
  ASSERT_TRUE(stream_->synchronize());
  EXPECT_EQ(whole.bytes(), slices.bytes());
}

TEST_F(GemmMm, ForcedInstructionSetsGiveTheSameBits) {
  Matrix a(33, 70, DType::kBF16, Layout2d::kRows);
  Matrix b(70, 90, DType::kBF16, Layout2d::kRows);
  a.fill(1);
  b.fill(2);
  std::vector<std::byte> expected;
  int num_ran = 0;
  for (const char* isa : {"scalar", "avx2", "avx512"}) {
    Config config;
    config.isa = isa;
    const auto device = open_device({DeviceKind::kCpu, 0}, config).value();
    const auto stream = device->create_stream().value();
    Matrix out(33, 90, DType::kBF16, Layout2d::kRows);
    const gemm::MmArgs args{.a = a.view(), .b = b.view(), .out = out.view(), .bias = {}};
    const auto problem = gemm::problem_of(args).value();
    if (!gemm::can_run(problem, *device)) continue;  // this processor lacks it
    const auto plan = gemm::plan(problem, *device).value();
    EXPECT_EQ(plan.implementation(), std::string("cpu/tile_") + isa);
    ASSERT_TRUE(gemm::run(plan, args, *stream));
    ASSERT_TRUE(stream->synchronize());
    if (expected.empty()) expected = out.bytes();
    EXPECT_EQ(out.bytes(), expected) << isa;
    ++num_ran;
  }
  EXPECT_GE(num_ran, 1);
}

}  // namespace
}  // namespace tandem::testing
