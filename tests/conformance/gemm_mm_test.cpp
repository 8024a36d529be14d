// mm against sums in f64 on every backend: shapes, types, strides, bias, accumulation. Guards around every
// buffer; outputs start as NaN.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <tandem/backend/backend.hpp>
#include <tandem/base/convert.hpp>
#include <tandem/gemm/mm.hpp>
#include <vector>

#include "harness/reference.hpp"
#include "support/device_bytes.hpp"
#include "support/test_devices.hpp"

namespace tandem::testing {
namespace {

enum class Layout2d { kRows, kPaddedRows, kColumns, kSpread };
constexpr Layout2d kLayouts[] = {Layout2d::kRows, Layout2d::kPaddedRows, Layout2d::kColumns,
                                 Layout2d::kSpread};

// What computes the products of a test.
struct GemmBackend {
  std::string name;
  DeviceKind kind = DeviceKind::kCpu;
  Config config;
  // Slices of k that accumulate one after the other give the bits of the whole. A vendor's library adds in an
  // order of its own.
  bool adds_in_order = true;
};

std::vector<GemmBackend> gemm_backends() {
  std::vector<GemmBackend> backends = {{"cpu", DeviceKind::kCpu, {}}};
  if (num_test_gpus() == 0) return backends;
  backends.push_back({"cuda", DeviceKind::kCuda, {}, false});
  Config plain;
  plain.cublaslt_library = "none";
  backends.push_back({"cuda_reference", DeviceKind::kCuda, plain});
  return backends;
}

// For the line of a failed test.
void PrintTo(const GemmBackend& backend, std::ostream* out) {
  *out << backend.name;
}

// A matrix in guarded memory, with holes where the layout has some. Filled and read on the host.
class Matrix {
 public:
  Matrix(Device& device, std::int64_t rows, std::int64_t cols, DType dtype, Layout2d layout)
      : memory_(device, GuardedBytes((rows * cols * 6 + 16 * (rows + cols)) * size_bytes(dtype))) {
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
    fill_by([&] { return uniform(random); });
  }
  void fill_with(double value) {
    fill_by([value] { return value; });
  }
  void download() { memory_.download(); }
  [[nodiscard]] const TensorView& view() const { return view_; }
  [[nodiscard]] double at(std::int64_t row, std::int64_t col) {
    return element_as_f64(on_host(), row * view_.size(1) + col);
  }
  // Whether all bytes but the elements' are as they were made.
  [[nodiscard]] bool holes_are_whole() {
    GuardedBytes& image = memory_.image();
    std::vector<char> is_element(static_cast<std::size_t>(image.size_bytes_held()), 0);
    const std::int64_t width = size_bytes(view_.dtype);
    for (std::int64_t r = 0; r < view_.size(0); ++r) {
      for (std::int64_t c = 0; c < view_.size(1); ++c) {
        const std::int64_t at = (r * view_.stride(0) + c * view_.stride(1)) * width;
        std::memset(&is_element[static_cast<std::size_t>(at)], 1, static_cast<std::size_t>(width));
      }
    }
    for (std::int64_t i = 0; i < image.size_bytes_held(); ++i) {
      if (!is_element[static_cast<std::size_t>(i)] && image.data()[i] != std::byte{0xff}) return false;
    }
    return image.guards_are_whole();
  }
  [[nodiscard]] std::vector<std::byte> bytes() {
    return {memory_.image().data(), memory_.image().data() + memory_.image().size_bytes_held()};
  }

 private:
  template <class Values>
  void fill_by(Values next) {
    const Tensor values = Tensor::host(view_.sizes, DType::kF64);
    for (std::int64_t i = 0; i < view_.numel(); ++i) values.view().data_as<double>()[i] = next();
    ASSERT_TRUE(convert(values.view(), on_host()));
    memory_.upload();
  }
  [[nodiscard]] TensorView on_host() {
    TensorView view = view_;
    view.data = memory_.image().data();
    view.device = {};
    return view;
  }

  DeviceBytes memory_;
  TensorView view_;
};

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

// The tensors of a case, and what out must hold.
class Product {
 public:
  Product(Device& device, const Case& c)
      : case_(c),
        a_(device, c.m, c.k, c.in, c.a),
        b_(device, c.k, c.n, c.in, c.b),
        out_(device, c.m, c.n, c.out, c.c),
        bias_(device, 1, c.n, c.out, c.c),
        before_(device, c.m, c.n, c.out, c.c) {
    a_.fill(1);
    b_.fill(2);
    bias_.fill(3);
    if (c.accumulate) {
      out_.fill(4);
      before_.fill(4);
    }
    a_bytes_ = a_.bytes();
    b_bytes_ = b_.bytes();
  }

  [[nodiscard]] gemm::MmArgs args() const {
    gemm::MmArgs args{
        .a = a_.view(), .b = b_.view(), .out = out_.view(), .bias = {}, .accumulate = case_.accumulate};
    if (case_.bias) args.bias = bias_.view().select(0, 0);
    return args;
  }
  [[nodiscard]] Matrix& out() { return out_; }

  // After the product ran once.
  void check() {
    for (Matrix* matrix : {&a_, &b_, &out_}) matrix->download();
    ASSERT_TRUE(out_.holes_are_whole());
    ASSERT_EQ(a_.bytes(), a_bytes_);
    ASSERT_EQ(b_.bytes(), b_bytes_);
    for (std::int64_t i = 0; i < case_.m; ++i) {
      for (std::int64_t j = 0; j < case_.n; ++j) {
        check_element(i, j);
        if (::testing::Test::HasFatalFailure()) return;
      }
    }
  }

 private:
  void check_element(std::int64_t i, std::int64_t j) {
    const Case& c = case_;
    double sum = c.accumulate ? before_.at(i, j) : 0.0;
    double magnitude = std::abs(sum);
    for (std::int64_t p = 0; p < c.k; ++p) {
      const double product = a_.at(i, p) * b_.at(p, j);
      sum += product;
      magnitude += std::abs(product);
    }
    if (c.bias) {
      sum += bias_.at(0, j);
      magnitude += std::abs(bias_.at(0, j));
    }
    const double bound = static_cast<double>(c.k + 2) * 0x1p-24 * magnitude +
                         (c.out == DType::kF32 ? 0.0 : harness::rounding_error(c.out, sum));
    ASSERT_LE(std::abs(out_.at(i, j) - sum), bound)
        << "element " << i << ", " << j << " is " << out_.at(i, j) << ", expected " << sum;
  }

  Case case_;
  Matrix a_;
  Matrix b_;
  Matrix out_;
  Matrix bias_;
  Matrix before_;
  std::vector<std::byte> a_bytes_;
  std::vector<std::byte> b_bytes_;
};

void expect_ok(const Result<void>& result) {
  ASSERT_TRUE(result) << result.error().to_string();
}

class GemmMm : public ::testing::TestWithParam<GemmBackend> {
 protected:
  void SetUp() override {
    auto device = open_device({GetParam().kind, 0}, GetParam().config);
    ASSERT_TRUE(device) << device.error().to_string();
    device_ = *std::move(device);
    stream_ = device_->create_stream().value();
  }

  void check(const Case& c) {
    Product product(*device_, c);
    const auto problem = gemm::problem_of(product.args());
    ASSERT_TRUE(problem) << problem.error().to_string();
    SCOPED_TRACE(gemm::to_string(*problem) + ", layouts " + std::to_string(static_cast<int>(c.a)) +
                 std::to_string(static_cast<int>(c.b)) + std::to_string(static_cast<int>(c.c)));
    expect_ok(gemm::mm(product.args(), *stream_));
    expect_ok(stream_->synchronize());
    if (!HasFatalFailure()) product.check();
  }

  std::unique_ptr<Device> device_;
  std::unique_ptr<Stream> stream_;
};
INSTANTIATE_TEST_SUITE_P(Backend, GemmMm, ::testing::ValuesIn(gemm_backends()),
                         [](const auto& backend) { return backend.param.name; });

struct Types {
  DType in;
  DType out;
};
constexpr Types kTypes[] = {{DType::kF32, DType::kF32},
                            {DType::kBF16, DType::kBF16},
                            {DType::kBF16, DType::kF32},
                            {DType::kF16, DType::kF16},
                            {DType::kF16, DType::kF32}};

TEST_P(GemmMm, AllSmallSizes) {
  for (std::int64_t m = 0; m < 10; ++m) {
    for (std::int64_t n = 0; n < 10; ++n) {
      for (std::int64_t k = 0; k < 10; ++k) {
        check({.m = m, .n = n, .k = k, .bias = (m + n + k) % 2 == 0});
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_P(GemmMm, SizesThatNothingDivides) {
  for (const Types& types : kTypes) {
    for (const auto& [m, n, k] :
         {std::tuple(1, 300, 200), std::tuple(300, 1, 200), std::tuple(97, 65, 1), std::tuple(101, 67, 259),
          std::tuple(13, 577, 31), std::tuple(9, 63, 1100)}) {
      check({.m = m, .n = n, .k = k, .in = types.in, .out = types.out, .bias = true});
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(GemmMm, WholeTiles) {
  for (const Types& types : kTypes) {
    check({.m = 128,
           .n = 192,
           .k = 256,
           .in = types.in,
           .out = types.out,
           .b = Layout2d::kColumns,
           .bias = true});
    if (HasFatalFailure()) return;
  }
}

TEST_P(GemmMm, ManyRows) {
  for (const Types& types : kTypes) {
    for (const std::int64_t n : {5, 8}) {
      check({.m = 40'001, .n = n, .k = 4, .in = types.in, .out = types.out, .bias = true});
      if (HasFatalFailure()) return;
    }
  }
}

// 2049 is 2048 in bf16 and in f16: rounded before the bias, out would be 0.
TEST_P(GemmMm, RoundsOnceBehindTheBias) {
  constexpr std::int64_t kSteps = 2049;
  for (const Types& types : kTypes) {
    for (const Layout2d layout : kLayouts) {
      Matrix a(*device_, 40, kSteps, types.in, Layout2d::kRows);
      Matrix b(*device_, kSteps, 32, types.in, Layout2d::kRows);
      Matrix bias(*device_, 1, 32, types.out, layout);
      Matrix out(*device_, 40, 32, types.out, layout);
      a.fill_with(1);
      b.fill_with(1);
      bias.fill_with(1 - kSteps);
      expect_ok(gemm::mm({.a = a.view(), .b = b.view(), .out = out.view(), .bias = bias.view().select(0, 0)},
                         *stream_));
      expect_ok(stream_->synchronize());
      out.download();
      for (std::int64_t i = 0; i < out.view().numel(); ++i) {
        ASSERT_EQ(out.at(i / 32, i % 32), 1) << to_string(types.in) << " -> " << to_string(types.out);
      }
    }
  }
}

TEST_P(GemmMm, AllLayouts) {
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

TEST_P(GemmMm, AccumulatesIntoF32) {
  for (const DType in : {DType::kF32, DType::kBF16, DType::kF16}) {
    for (const Layout2d out : kLayouts) {
      for (const std::int64_t k : {0, 1, 40}) {
        check({.m = 14, .n = 70, .k = k, .in = in, .c = out, .bias = k == 1, .accumulate = true});
        if (HasFatalFailure()) return;
      }
    }
  }
}

// What prepare() makes does not depend on memory, and it leaves all memory alone.
TEST_P(GemmMm, PrepareTakesNullPointersAndTouchesNothing) {
  const Case c{.m = 11, .n = 35, .k = 19, .in = DType::kBF16, .out = DType::kBF16, .bias = true};
  Product product(*device_, c);
  gemm::MmArgs like = product.args();
  expect_ok(gemm::prepare(like, *stream_));
  product.out().download();
  for (const std::byte byte : product.out().bytes()) ASSERT_EQ(byte, std::byte{0xff});
  for (TensorView* view : {&like.a, &like.b, &like.out, &*like.bias}) view->data = nullptr;
  expect_ok(gemm::prepare(like, *stream_));
  like.a.sizes[0] = 12;
  const auto refused = gemm::prepare(like, *stream_);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), ErrorCode::kInvalidArgument);
  expect_ok(gemm::mm(product.args(), *stream_));
  expect_ok(stream_->synchronize());
  product.check();
}

TEST_P(GemmMm, PreparedProductsCanBeRecorded) {
  if (GetParam().kind == DeviceKind::kCpu) GTEST_SKIP() << "the CPU records nothing";
  for (const Layout2d layout : kLayouts) {
    Case c{.m = 96, .n = 64, .k = 160, .in = DType::kBF16, .out = DType::kBF16};
    c.a = c.b = c.c = layout;
    c.bias = true;
    Product product(*device_, c);
    expect_ok(gemm::prepare(product.args(), *stream_));
    expect_ok(stream_->begin_capture());
    const auto recorded = gemm::mm(product.args(), *stream_);
    const auto graph = stream_->end_capture();
    expect_ok(recorded);
    ASSERT_TRUE(graph) << graph.error().to_string();
    for (int launch = 0; launch < 2; ++launch) expect_ok((*graph)->launch(*stream_));
    expect_ok(stream_->synchronize());
    product.check();
    if (HasFatalFailure()) return;
  }
}

// Slices of k that accumulate one after the other are one product, bit for bit.
TEST_P(GemmMm, SlicesOfKAddUpToTheWhole) {
  if (!GetParam().adds_in_order) GTEST_SKIP() << GetParam().name << " adds in an order of its own";
  Matrix a(*device_, 20, 90, DType::kBF16, Layout2d::kRows);
  Matrix b(*device_, 90, 50, DType::kBF16, Layout2d::kColumns);
  Matrix whole(*device_, 20, 50, DType::kF32, Layout2d::kRows);
  Matrix slices(*device_, 20, 50, DType::kF32, Layout2d::kRows);
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
  whole.download();
  slices.download();
  EXPECT_EQ(whole.bytes(), slices.bytes());
}

// Bit for bit: both add in ascending k by fused multiply-adds.
TEST(GemmReference, GivesTheBitsOfTheCpu) {
  if (num_test_gpus() == 0) GTEST_SKIP() << "no GPU";
  Config plain;
  plain.cublaslt_library = "none";
  for (const Types& types : kTypes) {
    std::vector<std::byte> expected;
    for (const DeviceKind kind : {DeviceKind::kCpu, DeviceKind::kCuda}) {
      const auto device = open_device({kind, 0}, plain).value();
      const auto stream = device->create_stream().value();
      Product product(*device, {.m = 70, .n = 130, .k = 333, .in = types.in, .out = types.out, .bias = true});
      expect_ok(gemm::mm(product.args(), *stream));
      expect_ok(stream->synchronize());
      product.out().download();
      if (kind == DeviceKind::kCpu) expected = product.out().bytes();
      EXPECT_EQ(product.out().bytes(), expected) << to_string(types.in) << " -> " << to_string(types.out);
    }
  }
}

TEST(GemmForced, InstructionSetsGiveTheSameBits) {
  std::vector<std::byte> expected;
  int num_ran = 0;
  for (const char* isa : {"scalar", "avx2", "avx512"}) {
    Config config;
    config.isa = isa;
    const auto device = open_device({DeviceKind::kCpu, 0}, config).value();
    const auto stream = device->create_stream().value();
    Product product(*device, {.m = 33, .n = 90, .k = 70, .in = DType::kBF16, .out = DType::kBF16});
    const gemm::MmArgs args = product.args();
    const auto problem = gemm::problem_of(args).value();
    if (!gemm::can_run(problem, *device)) continue;  // this processor lacks it
    const auto plan = gemm::plan(problem, *device).value();
    EXPECT_EQ(plan.implementation(), std::string("cpu/tile_") + isa);
    ASSERT_TRUE(gemm::run(plan, args, *stream));
    ASSERT_TRUE(stream->synchronize());
    product.out().download();
    if (expected.empty()) expected = product.out().bytes();
    EXPECT_EQ(product.out().bytes(), expected) << isa;
    ++num_ran;
  }
  EXPECT_GE(num_ran, 1);
}

}  // namespace
}  // namespace tandem::testing
