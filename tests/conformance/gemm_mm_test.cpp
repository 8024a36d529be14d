// mm against sums in f64 on every backend: shapes, types, strides, bias, accumulation. Guards around every
// buffer; outputs start as NaN. On CPUs a packed b gives the same bits.
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <tandem/gemm/mm.hpp>
#include <tandem/gemm/packed_b.hpp>
#include <vector>

#include "conformance/fused_harness.hpp"
#include "conformance/gemm_backends.hpp"
#include "harness/reference.hpp"

namespace tandem {
namespace {

using test::generated;
using test::Guarded;

enum class Layout2d { kRows, kPaddedRows, kColumns, kSpread };
constexpr Layout2d kLayouts[] = {Layout2d::kRows, Layout2d::kPaddedRows, Layout2d::kColumns,
                                 Layout2d::kSpread};

Layout layout_of(Layout2d layout, std::int64_t rows, std::int64_t cols) {
  switch (layout) {
    case Layout2d::kPaddedRows:
      return {{rows, cols}, {cols + 3, 1}};
    case Layout2d::kColumns:
      return {{rows, cols}, {1, rows + 2}};
    case Layout2d::kSpread:
      return {{rows, cols}, {2 * cols + 1, 2}};
    default:
      return {{rows, cols}, {cols, 1}};
  }
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

// The tensors of a case, and what out must hold.
class Product {
 public:
  Product(Device& device, const Case& c)
      : case_(c),
        a_(device, layout_of(c.a, c.m, c.k), generated({c.m, c.k}, c.in, 1)),
        b_(device, layout_of(c.b, c.k, c.n), generated({c.k, c.n}, c.in, 2)),
        bias_(device, layout_of(c.c, 1, c.n), generated({1, c.n}, c.out, 3)),
        out_(device, layout_of(c.c, c.m, c.n), c.out) {
    harness::ProductTensors tensors{.a = a_.host(), .b = b_.host()};
    if (c.bias) tensors.bias = bias_.host().select(0, 0);
    const Tensor before = generated({c.m, c.n}, c.out, 4);
    if (c.accumulate) {
      out_.fill(before.view());
      tensors.addend = before.view();
    }
    reference_.emplace(tensors);
    a_bytes_ = a_.bytes();
    b_bytes_ = b_.bytes();
  }

  [[nodiscard]] gemm::MmArgs args() const {
    gemm::MmArgs args{
        .a = a_.view(), .b = b_.view(), .out = out_.view(), .bias = {}, .accumulate = case_.accumulate};
    if (case_.bias) args.bias = bias_.view().select(0, 0);
    return args;
  }
  [[nodiscard]] const Guarded& out() const { return out_; }

  // After the product ran once.
  void check() const {
    for (const Guarded* tensor : {&a_, &b_, &out_}) tensor->download();
    ASSERT_TRUE(out_.guards_are_whole());
    ASSERT_EQ(a_.bytes(), a_bytes_);
    ASSERT_EQ(b_.bytes(), b_bytes_);
    harness::Wrong wrong;
    reference_->compare(out_.host(), "out", wrong);
    ASSERT_EQ(wrong.count, 0) << wrong.first;
  }

 private:
  Case case_;
  Guarded a_;
  Guarded b_;
  Guarded bias_;
  Guarded out_;
  std::optional<harness::ProductReference> reference_;
  std::vector<std::byte> a_bytes_;
  std::vector<std::byte> b_bytes_;
};

void expect_ok(const Result<void>& result) {
  ASSERT_TRUE(result) << result.error().to_string();
}

class GemmMm : public test::GemmTest {
 protected:
  void check(const Case& c) {
    Product product(*device_, c);
    const auto problem = gemm::problem_of(product.args());
    ASSERT_TRUE(problem) << problem.error().to_string();
    SCOPED_TRACE(gemm::to_string(*problem) + ", layouts " + std::to_string(static_cast<int>(c.a)) +
                 std::to_string(static_cast<int>(c.b)) + std::to_string(static_cast<int>(c.c)));
    expect_ok(gemm::mm(product.args(), *stream_));
    expect_ok(stream_->synchronize());
    if (HasFatalFailure()) return;
    product.check();
    if (HasFatalFailure() || GetParam().kind != DeviceKind::kCpu) return;
    check_packed(c, product);
  }

 private:
  void check_packed(const Case& c, const Product& plain) {
    Product product(*device_, c);
    gemm::MmArgs args = product.args();
    const auto packed = gemm::pack_b(args.b, *device_);
    ASSERT_TRUE(packed) << packed.error().to_string();
    args.b = {};
    expect_ok(gemm::mm(args, *packed, *stream_));
    expect_ok(stream_->synchronize());
    product.check();
    EXPECT_EQ(product.out().bytes(), plain.out().bytes());
  }
};
INSTANTIATE_TEST_SUITE_P(Backend, GemmMm, ::testing::ValuesIn(test::gemm_backends()),
                         test::gemm_backend_name);

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
      const Guarded a(*device_, Dims{40, kSteps}, types.in);
      const Guarded b(*device_, Dims{kSteps, 32}, types.in);
      const Guarded bias(*device_, layout_of(layout, 1, 32), types.out);
      const Guarded out(*device_, layout_of(layout, 40, 32), types.out);
      a.fill([](std::int64_t) { return 1; });
      b.fill([](std::int64_t) { return 1; });
      bias.fill([](std::int64_t) { return 1 - kSteps; });
      expect_ok(gemm::mm({.a = a.view(), .b = b.view(), .out = out.view(), .bias = bias.view().select(0, 0)},
                         *stream_));
      expect_ok(stream_->synchronize());
      out.download();
      for (std::int64_t i = 0; i < out.view().numel(); ++i) {
        ASSERT_EQ(out.at(i), 1) << to_string(types.in) << " -> " << to_string(types.out);
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

// Whole numbers: every result is exact.
TEST_P(GemmMm, AddsWhatItIsGivenOrWhatOutHolds) {
  constexpr std::int64_t kM = 37, kN = 40, kK = 24;
  const auto a_at = [](std::int64_t i) { return static_cast<double>(i * 5 % 5 - 2); };
  const auto b_at = [](std::int64_t i) { return static_cast<double>(i * 7 % 3 - 1); };
  const auto added_at = [](std::int64_t i) { return static_cast<double>(i % 11 - 5); };
  for (const Types& types : kTypes) {
    for (const Layout2d out_layout : kLayouts) {
      for (const Layout2d layout : kLayouts) {
        for (unsigned options = 0; options < 4; ++options) {
          const bool has_bias = (options & 1U) != 0;
          const bool adds_out = (options & 2U) != 0;
          const Guarded a(*device_, Dims{kM, kK}, types.in);
          const Guarded b(*device_, Dims{kK, kN}, types.in);
          const Guarded bias(*device_, Dims{kN}, types.out);
          const Guarded out(*device_, layout_of(out_layout, kM, kN), types.out);
          const Guarded addend(*device_, layout_of(layout, kM, kN), types.out);
          a.fill(a_at);
          b.fill(b_at);
          bias.fill(added_at);
          (adds_out ? out : addend).fill(added_at);
          gemm::MmArgs args{.a = a.view(), .b = b.view(), .out = out.view(), .bias = {}};
          if (has_bias) args.bias = bias.view();
          args.addend = adds_out ? out.view() : addend.view();
          expect_ok(gemm::prepare(args, *stream_));
          expect_ok(gemm::mm(args, *stream_));
          expect_ok(stream_->synchronize());
          if (HasFatalFailure()) return;
          out.download();
          ASSERT_TRUE(out.guards_are_whole());
          for (std::int64_t i = 0; i < kM * kN; ++i) {
            double sum = added_at(i);
            for (std::int64_t k = 0; k < kK; ++k) sum += a_at(i / kN * kK + k) * b_at(k * kN + i % kN);
            ASSERT_EQ(out.at(i), sum + (has_bias ? added_at(i % kN) : 0))
                << to_string(types.in) << " -> " << to_string(types.out) << ", element " << i << ", options "
                << options << ", layouts " << static_cast<int>(out_layout) << static_cast<int>(layout);
          }
        }
      }
    }
  }
}

// What prepare() makes does not depend on memory, and it leaves all memory alone.
TEST_P(GemmMm, PrepareTakesNullPointersAndTouchesNothing) {
  const Case c{.m = 11, .n = 35, .k = 19, .in = DType::kBF16, .out = DType::kBF16, .bias = true};
  Product product(*device_, c);
  gemm::MmArgs like = product.args();
  const std::vector<std::byte> before = product.out().bytes();
  expect_ok(gemm::prepare(like, *stream_));
  product.out().download();
  ASSERT_EQ(product.out().bytes(), before);
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

TEST_P(GemmMm, AddendsAfterAPackedB) {
  const Guarded a(*device_, test::dense({20, 90}), generated({20, 90}, DType::kBF16, 1));
  const Guarded b(*device_, layout_of(Layout2d::kColumns, 90, 150), generated({90, 150}, DType::kBF16, 2));
  const Guarded addend(*device_, test::dense({20, 150}), generated({20, 150}, DType::kBF16, 3));
  const Guarded want(*device_, Dims{20, 150}, DType::kBF16);
  const Guarded got(*device_, Dims{20, 150}, DType::kBF16);
  const auto packed = gemm::pack_b(b.view(), *device_);
  if (GetParam().kind != DeviceKind::kCpu) {
    ASSERT_FALSE(packed);
    EXPECT_EQ(packed.error().code(), ErrorCode::kUnsupported);
    EXPECT_NE(packed.error().text().find("reads b as it is"), std::string::npos) << packed.error().text();
    return;
  }
  ASSERT_TRUE(packed) << packed.error().to_string();
  EXPECT_EQ(packed->k(), 90);
  EXPECT_EQ(packed->n(), 150);
  EXPECT_EQ(packed->dtype(), DType::kBF16);
  EXPECT_GE(packed->num_bytes(), 90 * 150 * 2);
  expect_ok(gemm::mm({.a = a.view(), .b = b.view(), .out = want.view(), .bias = {}, .addend = addend.view()},
                     *stream_));
  expect_ok(gemm::mm({.a = a.view(), .b = {}, .out = got.view(), .bias = {}, .addend = addend.view()},
                     *packed, *stream_));
  expect_ok(stream_->synchronize());
  want.download();
  got.download();
  EXPECT_EQ(got.bytes(), want.bytes());
}

TEST(GemmPackedB, RefusesWhatDoesNotFit) {
  const auto device = open_device({DeviceKind::kCpu, 0}, Config()).value();
  const auto stream = device->create_stream().value();
  const Tensor a = generated({4, 6}, DType::kF32, 1);
  const Tensor b = generated({6, 8}, DType::kF32, 2);
  const Tensor out = Tensor::host({4, 8}, DType::kF32);
  const auto packed = gemm::pack_b(b.view(), *device).value();
  const auto text_of = [&](const gemm::MmArgs& args) {
    const auto result = gemm::mm(args, packed, *stream);
    return result ? std::string("no error") : std::string(result.error().text());
  };
  EXPECT_NE(text_of({.a = a.view(), .b = b.view(), .out = out.view(), .bias = {}}).find("got b twice"),
            std::string::npos);
  EXPECT_NE(
      text_of({.a = b.view(), .b = {}, .out = out.view(), .bias = {}}).find("8 columns of a, 6 rows of b"),
      std::string::npos);
  Config config;
  config.isa = "scalar";
  const auto other = open_device({DeviceKind::kCpu, 0}, config).value();
  const auto theirs = gemm::pack_b(b.view(), *other).value();
  EXPECT_EQ(theirs.implementation(), "cpu/tile_scalar");
  if (packed.implementation() == theirs.implementation()) return;
  const auto refused = gemm::mm({.a = a.view(), .b = {}, .out = out.view(), .bias = {}}, theirs, *stream);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().text().find("b was packed for cpu/tile_scalar"), std::string::npos)
      << refused.error().text();
  const Tensor whole = Tensor::host({6, 8}, DType::kI32);
  EXPECT_FALSE(gemm::pack_b(whole.view(), *device));
  const Tensor row = Tensor::host({6}, DType::kF32);
  EXPECT_FALSE(gemm::pack_b(row.view(), *device));
}

// Slices of k that accumulate one after the other are one product, bit for bit, if they begin at even k.
TEST_P(GemmMm, SlicesOfKAddUpToTheWhole) {
  if (!GetParam().adds_in_order) GTEST_SKIP() << GetParam().name << " adds in an order of its own";
  const Guarded a(*device_, test::dense({20, 90}), generated({20, 90}, DType::kBF16, 1));
  const Guarded b(*device_, layout_of(Layout2d::kColumns, 90, 50), generated({90, 50}, DType::kBF16, 2));
  const Guarded whole(*device_, Dims{20, 50}, DType::kF32);
  const Guarded slices(*device_, Dims{20, 50}, DType::kF32);
  ASSERT_TRUE(gemm::mm({.a = a.view(), .b = b.view(), .out = whole.view(), .bias = {}}, *stream_));
  for (const auto& [begin, size] : {std::pair(0, 8), std::pair(8, 50), std::pair(58, 32)}) {
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

// Bit for bit: both add in ascending k by fused multiply-adds. CPUs add products of bf16 in pairs.
TEST(GemmReference, GivesTheBitsOfTheCpu) {
  if (testing::num_test_gpus() == 0) GTEST_SKIP() << "no GPU";
  Config plain;
  plain.cublaslt_library = "none";
  for (const Types& types : kTypes) {
    if (types.in == DType::kBF16) continue;
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
  for (const char* isa : {"scalar", "avx2", "avx512", "avx512_bf16"}) {
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
}  // namespace tandem
