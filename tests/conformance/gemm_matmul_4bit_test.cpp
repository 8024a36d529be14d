// matmul_4bit against a plain loop of the formula in its header, bit by bit and by every instruction set, and
// against float64 with the weights as they are stored.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <string>
#include <tandem/backend/backend.hpp>
#include <tandem/base/convert.hpp>
#include <tandem/gemm/matmul_4bit.hpp>
#include <vector>

#include "harness/operands.hpp"

namespace tandem {
namespace {

using gemm::Packed4bitWeight;
using gemm::Weight4bit;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

enum class Values { kAnySign, kPositive, kNegative, kWide, kSpecial, kTiny, kHuge, kHalves, kEqual };

struct Case {
  std::int64_t m = 1;
  std::int64_t n = 32;
  std::int64_t k = 64;
  std::int64_t group = 32;
  DType in = DType::kF32;
  DType out = DType::kF32;
  bool has_bias = false;
  bool is_strided = false;
  Values values = Values::kAnySign;
};

std::string to_text(const Case& c) {
  return fmt::format("{} {}x{}x{} by {} -> {}{}{} values {}", to_string(c.in), c.m, c.n, c.k, c.group,
                     to_string(c.out), c.has_bias ? " with bias" : "", c.is_strided ? " strided" : "",
                     static_cast<int>(c.values));
}

float input_value(const Case& c, std::int64_t row, std::int64_t col) {
  const float ordinary = harness::generated_value(3, row * c.k + col);
  switch (c.values) {
    case Values::kPositive:
      return std::fabs(ordinary);
    case Values::kNegative:
      return -std::fabs(ordinary);
    case Values::kWide:
      return std::ldexp(ordinary, static_cast<int>((row * 37) % 200) - 100);
    case Values::kSpecial:
      if (row % 4 == 1) return 0;
      if (row % 4 == 2 && col == c.k - 1)
        return row % 8 == 2 ? kInfinity : std::numeric_limits<float>::quiet_NaN();
      return row % 4 == 3 ? std::ldexp(ordinary, 127) : ordinary;
    case Values::kTiny:  // subnormal
      return std::ldexp(ordinary, -130);
    case Values::kHuge:
      return std::copysign(std::numeric_limits<float>::max(), ordinary);
    case Values::kHalves: {  // of a range of 255, so that they are rounded as they are
      const float below_half = 0x1.fffffep-2F;
      const float half = col == 0 ? 255 : col == 1 ? below_half : static_cast<float>(col % 64) / 2;
      return row % 2 == 0 ? half : -half;
    }
    case Values::kEqual:  // each -128 or 127 in 8 bits
      return row % 2 == 0 ? -1.0F : 1.0F;
    default:
      return ordinary;
  }
}

/// The input as the product sees it, in f32.
std::vector<float> input_of(const Case& c) {
  std::vector<float> values;
  for (std::int64_t row = 0; row < c.m; ++row) {
    for (std::int64_t col = 0; col < c.k; ++col) values.push_back(input_value(c, row, col));
  }
  if (c.in == DType::kF32) return values;
  std::vector<std::uint16_t> narrow(values.size());
  const Dims sizes{c.m, c.k};
  const auto wide = TensorView::contiguous(values.data(), sizes, DType::kF32);
  const auto small = TensorView::contiguous(narrow.data(), sizes, c.in);
  EXPECT_TRUE(convert(wide, small));
  EXPECT_TRUE(convert(small, wide));
  return values;
}

/// Every nibble, scales of several sizes, and a group of zeros.
Weight4bit weight_of(const Case& c) {
  Weight4bit weight;
  const std::int64_t groups = c.k / c.group;
  for (std::int64_t i = 0; i < c.n * c.k / 2; ++i)
    weight.nibbles.push_back(static_cast<std::uint8_t>(i * 73 + i / 16 * 29));
  for (std::int64_t i = 0; i < c.n * groups; ++i)
    weight.scales.push_back(i % 11 == 5 ? 0.0F : std::ldexp(1.0F + 0.01F * static_cast<float>(i % 50), -4));
  return weight;
}

std::vector<float> bias_of(const Case& c) {
  std::vector<float> bias;
  for (std::int64_t i = 0; i < c.n; ++i) bias.push_back(harness::generated_value(5, i));
  return bias;
}

/// As the header says it.
struct Rounded {
  float scale = 1;
  int zero = 0;
  std::vector<int> q;
  bool is_finite = true;
};

Rounded rounded(const float* row, std::int64_t k) {
  Rounded made;
  float lo = 0;
  float hi = 0;
  for (std::int64_t i = 0; i < k; ++i) {
    made.is_finite = made.is_finite && std::isfinite(row[i]);
    lo = std::min(lo, row[i]);
    hi = std::max(hi, row[i]);
  }
  if (!made.is_finite) return made;
  if (lo != hi) {
    const double scale = 255.0 / (static_cast<double>(hi) - lo);
    made.scale = static_cast<float>(std::min<double>(scale, std::numeric_limits<float>::max()));
  }
  const float low = lo * made.scale;
  const float high = hi * made.scale;
  const float zero = (-128.0F + low) + (127.0F + high) > 0 ? -128.0F - low : 127.0F - high;
  made.zero = static_cast<int>(std::nearbyint(std::clamp(zero, -128.0F, 127.0F)));
  for (std::int64_t i = 0; i < k; ++i) {
    const int q = static_cast<int>(std::round(row[i] * made.scale)) + made.zero;
    made.q.push_back(std::clamp(q, -128, 127));
  }
  return made;
}

int nibble_of(const Weight4bit& weight, std::int64_t at) {
  const int byte = weight.nibbles[static_cast<std::size_t>(at / 2)];
  return at % 2 == 0 ? byte & 15 : byte >> 4;
}

float narrowed(float value, DType dtype) {
  if (std::isnan(value)) return std::numeric_limits<float>::quiet_NaN();
  const float largest = dtype == DType::kBF16 ? 0x1.fep127F : std::numeric_limits<float>::max();
  return std::clamp(value, -largest, largest);
}

std::vector<float> expected(const Case& c, const Weight4bit& weight) {
  const std::vector<float> input = input_of(c);
  const std::vector<float> bias = bias_of(c);
  std::vector<float> out;
  for (std::int64_t row = 0; row < c.m; ++row) {
    const Rounded x = rounded(input.data() + row * c.k, c.k);
    for (std::int64_t col = 0; col < c.n; ++col) {
      float sum = 0;
      for (std::int64_t j = 0; x.is_finite && j < c.k / c.group; ++j) {
        std::int64_t exact = 0;
        for (std::int64_t i = j * c.group; i < (j + 1) * c.group; ++i)
          exact += (x.q[static_cast<std::size_t>(i)] - x.zero) * (nibble_of(weight, col * c.k + i) - 8);
        const float scale = weight.scales[static_cast<std::size_t>(col * (c.k / c.group) + j)];
        sum = std::fma(static_cast<float>(exact), scale, sum);
      }
      float y = x.is_finite ? sum / x.scale : std::numeric_limits<float>::quiet_NaN();
      if (c.has_bias) y += bias[static_cast<std::size_t>(col)];
      out.push_back(narrowed(y, c.out));
    }
  }
  return out;
}

Result<Packed4bitWeight> packed_of(const Case& c, Weight4bit& weight, std::vector<float>& bias) {
  gemm::Pack4bitArgs args{
      .weight = TensorView::contiguous(weight.nibbles.data(), {c.n, c.k / 2}, DType::kU8),
      .scales = TensorView::contiguous(weight.scales.data(), {c.n * (c.k / c.group)}, DType::kF32),
      .group_size = c.group,
      .in_features = c.k,
      .out_features = c.n};
  if (c.has_bias) args.bias = TensorView::contiguous(bias.data(), {c.n}, DType::kF32);
  return pack_4bit_weight(args);
}

/// A matrix, with two elements in front of each row and twice the memory between columns if it is strided.
class Buffer {
 public:
  Buffer(std::int64_t rows, std::int64_t cols, DType dtype, bool is_strided)
      : step_(is_strided ? 2 : 1),
        row_(cols * step_ + (is_strided ? 3 : 0)),
        bytes_(rows * row_ * size_bytes(dtype) + 16) {
    std::fill(bytes_.begin(), bytes_.end(), std::byte{0xa5});
    view_ = {bytes_.data(), {rows, cols}, {row_, step_}, dtype, {}};
  }
  [[nodiscard]] const TensorView& view() const { return view_; }
  /// How many bytes outside of the elements were changed.
  [[nodiscard]] std::int64_t num_changed_outside() {
    const std::vector<std::byte> canary(16, std::byte{0xa5});
    for (std::int64_t row = 0; row < view_.size(0); ++row) {
      for (std::int64_t col = 0; col < view_.size(1); ++col) {
        const std::int64_t at = (row * row_ + col * step_) * size_bytes(view_.dtype);
        std::memcpy(bytes_.data() + at, canary.data(), static_cast<std::size_t>(size_bytes(view_.dtype)));
      }
    }
    return std::count_if(bytes_.begin(), bytes_.end(),
                         [](std::byte byte) { return byte != std::byte{0xa5}; });
  }

 private:
  std::int64_t step_;
  std::int64_t row_;
  std::vector<std::byte> bytes_;
  TensorView view_;
};

constexpr const char* kIsas[] = {"avx512", "avx2", "scalar"};

/// By one instruction set, or nothing where this processor does not have it.
std::optional<std::vector<float>> multiplied(const Case& c, const Packed4bitWeight& packed,
                                             const std::string& isa) {
  Config config;
  config.isa = isa;
  const auto device = open_device({DeviceKind::kCpu, 0}, config);
  EXPECT_TRUE(device);
  std::vector<float> values = input_of(c);
  const Buffer input(c.m, c.k, c.in, c.is_strided);
  Buffer out(c.m, c.n, c.out, c.is_strided);
  EXPECT_TRUE(convert(TensorView::contiguous(values.data(), {c.m, c.k}, DType::kF32), input.view()));
  const gemm::Matmul4bitArgs args{.input = input.view(), .out = out.view()};
  const auto plan = gemm::plan(gemm::problem_of(args, packed).value(), **device);
  if (!plan) return std::nullopt;
  EXPECT_NE(plan->implementation().find("4bit_" + isa), std::string_view::npos) << plan->implementation();
  const auto stream = (*device)->create_stream();
  const auto done = run(*plan, args, packed, **stream);
  EXPECT_TRUE(done) << done.error().to_string();
  EXPECT_TRUE((*stream)->synchronize());
  std::vector<float> result(static_cast<std::size_t>(c.m * c.n));
  EXPECT_TRUE(convert(out.view(), TensorView::contiguous(result.data(), {c.m, c.n}, DType::kF32)));
  EXPECT_EQ(out.num_changed_outside(), 0);
  return result;
}

std::vector<float> as_out(const std::vector<float>& values, const Case& c) {
  std::vector<float> made = values;
  std::vector<std::uint16_t> narrow(values.size());
  const auto wide = TensorView::contiguous(made.data(), {c.m, c.n}, DType::kF32);
  const auto small = TensorView::contiguous(narrow.data(), {c.m, c.n}, c.out);
  if (c.out == DType::kF32) return made;
  EXPECT_TRUE(convert(wide, small));
  EXPECT_TRUE(convert(small, wide));
  return made;
}

/// By all instruction sets, whose bits are the same.
std::vector<float> multiplied_by_all(const Case& c, const Packed4bitWeight& packed) {
  std::optional<std::vector<float>> first;
  for (const char* const isa : kIsas) {
    const auto got = multiplied(c, packed, isa);
    if (!got) continue;
    if (!first) first = got;
    const bool is_same = std::memcmp(first->data(), got->data(), got->size() * sizeof(float)) == 0;
    EXPECT_TRUE(got->empty() || is_same) << isa << " has other bits: " << to_text(c);
  }
  EXPECT_TRUE(first);
  return *first;
}

void check(const Case& c) {
  SCOPED_TRACE(to_text(c));
  Weight4bit weight = weight_of(c);
  std::vector<float> bias = bias_of(c);
  const auto packed = packed_of(c, weight, bias);
  ASSERT_TRUE(packed) << packed.error().to_string();
  const std::vector<float> want = as_out(expected(c, weight), c);
  const std::vector<float> got = multiplied_by_all(c, *packed);
  for (std::size_t i = 0; i < want.size(); ++i) {
    ASSERT_TRUE(std::memcmp(&got[i], &want[i], sizeof(float)) == 0 || (got[i] == 0 && want[i] == 0))
        << "[" << i / static_cast<std::size_t>(c.n) << ", " << i % static_cast<std::size_t>(c.n)
        << "]: " << got[i] << ", need " << want[i];
  }
}

TEST(Matmul4bit, HasTheBitsOfItsFormulaByEveryInstructionSet) {
  for (std::int64_t m = 1; m <= 17; ++m) check({.m = m, .n = 40, .k = 64, .group = 32});
  for (const std::int64_t n : {1, 15, 16, 17, 31, 32, 33, 63, 65, 100})
    check({.m = 3, .n = n, .k = 96, .group = 32});
  for (const std::int64_t group : {32, 64, 224, 256, 448, 896, 1792})
    check({.m = 9, .n = 33, .k = 1792, .group = group});
  for (const DType in : {DType::kF32, DType::kBF16}) {
    for (const DType out : {DType::kF32, DType::kBF16}) {
      for (const bool has_bias : {false, true}) {
        for (const bool is_strided : {false, true}) {
          for (const std::int64_t group : {32, 128})
            check({.m = 5,
                   .n = 37,
                   .k = 128,
                   .group = group,
                   .in = in,
                   .out = out,
                   .has_bias = has_bias,
                   .is_strided = is_strided});
        }
      }
    }
  }
  // More rows than are multiplied at once.
  check({.m = 300, .n = 32, .k = 2048, .group = 32});
}

TEST(Matmul4bit, HasTheBitsOfItsFormulaWhateverTheValues) {
  for (const Values values : {Values::kPositive, Values::kNegative, Values::kWide, Values::kSpecial,
                              Values::kTiny, Values::kHuge, Values::kHalves}) {
    for (const std::int64_t group : {32, 128})
      check({.m = 19,
             .n = 35,
             .k = 128,
             .group = group,
             .out = DType::kF32,
             .has_bias = true,
             .values = values});
  }
  for (const std::int64_t group : {256, 288}) {
    check({.m = 8, .n = 33, .k = 2 * group, .group = group, .values = Values::kEqual});
    check({.m = 2, .n = 33, .k = 2 * group, .group = group, .values = Values::kEqual});
  }
  check({.m = 1, .n = 2, .k = 131072, .group = 131072, .values = Values::kEqual});
}

TEST(Matmul4bit, IsEmptyWhereNothingIsThere) {
  check({.m = 0, .n = 32, .k = 64});
  check({.m = 3, .n = 0, .k = 64});
  check({.m = 3, .n = 5, .k = 0, .group = 32, .has_bias = true});
}

TEST(Matmul4bit, GivesOneFormOfNaNByEveryInstructionSet) {
  const Case c{.m = 3, .n = 33, .k = 64, .has_bias = true};
  Weight4bit weight = weight_of(c);
  std::vector<float> bias = bias_of(c);
  weight.scales[2] = -std::numeric_limits<float>::quiet_NaN();
  weight.scales[4] = kInfinity;
  weight.scales[5] = -kInfinity;
  bias[7] = -std::numeric_limits<float>::quiet_NaN();
  const auto packed = packed_of(c, weight, bias);
  ASSERT_TRUE(packed);
  const std::vector<float> got = multiplied_by_all(c, *packed);
  for (const std::size_t column : {1U, 7U}) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, &got[column], sizeof(bits));
    EXPECT_EQ(bits, 0x7fc00000U) << "column " << column;
  }
}

TEST(Matmul4bit, TakesRowsOfManyDims) {
  const Case c{.m = 12, .n = 40, .k = 64};
  Weight4bit weight = weight_of(c);
  std::vector<float> bias;
  const auto packed = packed_of(c, weight, bias);
  ASSERT_TRUE(packed);
  const auto want = multiplied(c, *packed, "scalar");
  std::vector<float> values = input_of(c);  // [2, 3, 2, 64]; out is [2, 3, 2, 40] with dims in another order
  std::vector<float> out(12 * 40, -1);
  const TensorView input{values.data(), {2, 3, 2, 64}, {384, 128, 64, 1}, DType::kF32, {}};
  const TensorView turned{out.data(), {2, 3, 2, 40}, {40, 160, 80, 1}, DType::kF32, {}};
  const auto device = open_device({DeviceKind::kCpu, 0}, {});
  const auto stream = (*device)->create_stream();
  ASSERT_TRUE(matmul_4bit({.input = input, .out = turned}, *packed, **stream));
  ASSERT_TRUE((*stream)->synchronize());
  for (std::size_t row = 0; row < 12; ++row) {
    const std::size_t at = row / 6 * 40 + row / 2 % 3 * 160 + row % 2 * 80;
    EXPECT_EQ(std::memcmp(&out[at], &(*want)[row * 40], 40 * sizeof(float)), 0) << row;
  }
}

/// The weight as it is stored.
std::vector<double> stored_of(const Weight4bit& weight, const Case& c) {
  std::vector<double> stored;
  for (std::int64_t i = 0; i < c.n * c.k; ++i)
    stored.push_back((nibble_of(weight, i) - 8) *
                     static_cast<double>(weight.scales[static_cast<std::size_t>(i / c.group)]));
  return stored;
}

/// ||error|| / ||product|| in float64.
double relative_error(const std::vector<float>& got, const std::vector<float>& input,
                      const std::vector<double>& weight, const Case& c) {
  const std::vector<float> bias = bias_of(c);
  double error = 0;
  double whole = 0;
  for (std::int64_t row = 0; row < c.m; ++row) {
    for (std::int64_t col = 0; col < c.n; ++col) {
      double sum = c.has_bias ? bias[static_cast<std::size_t>(col)] : 0;
      for (std::int64_t i = 0; i < c.k; ++i)
        sum += static_cast<double>(input[static_cast<std::size_t>(row * c.k + i)]) *
               weight[static_cast<std::size_t>(col * c.k + i)];
      const double off = static_cast<double>(got[static_cast<std::size_t>(row * c.n + col)]) - sum;
      error += off * off;
      whole += sum * sum;
    }
  }
  return whole == 0 ? std::sqrt(error) : std::sqrt(error / whole);
}

/// A few thousand operations, of any kind. Sums that cancel have no relative error, so there are many
/// columns.
Case random_case(int seed) {
  auto random = [at = std::int64_t{0}, seed](std::int64_t count) mutable {
    const float value = (harness::generated_value(static_cast<std::uint64_t>(seed) + 100, at++) + 1) / 2;
    return std::min(static_cast<std::int64_t>(value * static_cast<float>(count)), count - 1);
  };
  const auto type = [&] { return random(2) == 0 ? DType::kF32 : DType::kBF16; };
  Case c{.m = random(14), .n = 24 + random(60), .k = 32 * (1 + random(12)), .in = type(), .out = type()};
  do c.group = 32 * (1 + random(c.k / 32));
  while (c.k % c.group != 0);
  c.has_bias = random(2) == 0;
  c.is_strided = random(2) == 0;
  constexpr Values kValues[] = {Values::kAnySign, Values::kPositive, Values::kNegative, Values::kWide};
  c.values = kValues[random(4)];
  return c;
}

TEST(Matmul4bit, IsCloseToFloat64AndTheSameByEveryInstructionSet) {
  for (int seed = 0; seed < 1000; ++seed) {
    const Case c = random_case(seed);
    SCOPED_TRACE(to_text(c));
    std::vector<float> original;
    for (std::int64_t i = 0; i < c.n * c.k; ++i)
      original.push_back(harness::generated_value(static_cast<std::uint64_t>(seed) + 2000, i));
    auto weight =
        gemm::quantize_weight_4bit(TensorView::contiguous(original.data(), {c.n, c.k}, DType::kF32), c.group);
    ASSERT_TRUE(weight);
    std::vector<float> bias = bias_of(c);
    const auto packed = packed_of(c, *weight, bias);
    ASSERT_TRUE(packed);
    const std::vector<float> got = multiplied_by_all(c, *packed);
    ASSERT_LE(relative_error(got, input_of(c), stored_of(*weight, c), c), 0.02);
  }
}

TEST(QuantizeWeight4bit, RoundsByTheLargestOfEachGroup) {
  std::vector<float> weight(2 * 64, 0.0F);
  weight[0] = 7;
  weight[1] = -7;
  weight[2] = 0.49F;
  weight[3] = 0.51F;
  weight[64 + 33] = -0.25F;
  const auto made =
      gemm::quantize_weight_4bit(TensorView::contiguous(weight.data(), {2, 64}, DType::kF32), 32);
  ASSERT_TRUE(made);
  EXPECT_EQ(made->scales, (std::vector<float>{1, std::numeric_limits<float>::min(),
                                              std::numeric_limits<float>::min(), 0.25F / 7}));
  EXPECT_EQ(nibble_of(*made, 0), 15);
  EXPECT_EQ(nibble_of(*made, 1), 1);
  EXPECT_EQ(nibble_of(*made, 2), 8);
  EXPECT_EQ(nibble_of(*made, 3), 9);
  EXPECT_EQ(nibble_of(*made, 64 + 33), 1);
  EXPECT_EQ(nibble_of(*made, 40), 8);
}

TEST(Pack4bitWeight, TakesLittleMoreThanTheWeight) {
  for (const std::int64_t group : {32, 64, 128, 4096}) {
    Case c{.n = 256, .k = 4096, .group = group};
    Weight4bit weight = weight_of(c);
    std::vector<float> bias;
    const auto packed = packed_of(c, weight, bias);
    ASSERT_TRUE(packed);
    const double data = static_cast<double>(weight.nibbles.size() + weight.scales.size() * sizeof(float));
    EXPECT_LE(static_cast<double>(packed->num_bytes()), 1.15 * data) << group;
  }
}

TEST(Matmul4bit, SaysWhatRunsItAndWhyNothingElseDoes) {
  const gemm::Matmul4bitProblem problem{
      .m = 2, .n = 4, .k = 64, .group_size = 32, .out = DType::kBF16, .bias = true};
  EXPECT_EQ(to_string(problem), "matmul_4bit 2x4x64 f32 in groups of 32 -> bf16 + bias");
  Config config;
  config.isa = "scalar";
  const auto scalar = open_device({DeviceKind::kCpu, 0}, config);
  const auto plan = gemm::plan(problem, **scalar);
  ASSERT_TRUE(plan) << plan.error().to_string();
  EXPECT_TRUE(can_run(problem, **scalar));
  EXPECT_EQ(plan->implementation(), "cpu/4bit_scalar");
  for (const char* reason :
       {"cpu/4bit_avx512_vnni: TANDEM_ISA=scalar excludes it", "cpu/4bit_avx2: TANDEM_ISA=scalar excludes it",
        "cpu/tile_scalar: has no products by 4-bit weights"})
    EXPECT_NE(plan->why_no_others().find(reason), std::string::npos) << plan->why_no_others();
  config.isa = "neon";
  const auto none = open_device({DeviceKind::kCpu, 0}, config);
  const Support support = can_run(problem, **none);
  EXPECT_FALSE(support);
  EXPECT_NE(support.why_not.find("cpu/4bit_scalar: TANDEM_ISA=neon excludes it"), std::string::npos)
      << support.why_not;
  const auto refused = gemm::plan(problem, **none);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), ErrorCode::kUnsupported);

  // A plan is for its problem alone.
  const Case c{.m = 3, .n = 4, .k = 64};
  Weight4bit weight = weight_of(c);
  std::vector<float> bias;
  const auto packed = packed_of(c, weight, bias);
  std::vector<float> memory(256);
  const auto stream = (*scalar)->create_stream();
  const auto done = run(*plan,
                        {.input = TensorView::contiguous(memory.data(), {3, 64}, DType::kF32),
                         .out = TensorView::contiguous(memory.data() + 200, {3, 4}, DType::kF32)},
                        *packed, **stream);
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().text(),
            "matmul_4bit: the arguments are of matmul_4bit 3x4x64 f32 in groups of 32 -> f32, the plan of "
            "matmul_4bit 2x4x64 f32 in groups of 32 -> bf16 + bias");
}

/// The text of what is refused.
std::string refused(const gemm::Pack4bitArgs& args) {
  const auto packed = pack_4bit_weight(args);
  return packed ? "nothing" : packed.error().text();
}

TEST(Pack4bitWeight, RefusesWhatDoesNotFit) {
  std::vector<std::uint8_t> nibbles(4 * 32);
  std::vector<float> scales(8);
  const gemm::Pack4bitArgs good{.weight = TensorView::contiguous(nibbles.data(), {4, 32}, DType::kU8),
                                .scales = TensorView::contiguous(scales.data(), {4, 2}, DType::kF32),
                                .group_size = 32,
                                .in_features = 64,
                                .out_features = 4};
  ASSERT_EQ(refused(good), "nothing");
  gemm::Pack4bitArgs bad = good;
  bad.in_features = 63;
  EXPECT_NE(refused(bad).find("in_features is 63, need a multiple of 32: pad with zeros"), std::string::npos);
  for (const std::int64_t group : {0, -32, 16, 48, 128}) {
    bad = good;
    bad.group_size = group;
    EXPECT_NE(
        refused(bad).find(fmt::format("group_size is {}, need 64 (in_features), or a multiple of 32", group)),
        std::string::npos)
        << refused(bad);
  }
  bad = good;
  bad.in_features = bad.group_size = std::int64_t{1} << 18;
  EXPECT_NE(refused(bad).find("group_size is 262144, need at most 131072"), std::string::npos)
      << refused(bad);
  bad = good;
  bad.out_features = 5;
  EXPECT_NE(refused(bad).find("weight is u8 [4, 32], need u8 [5, 32] or [10, 16] or [160]"),
            std::string::npos)
      << refused(bad);
  bad = good;
  bad.scales = TensorView::contiguous(scales.data(), {4, 1}, DType::kF32);
  EXPECT_NE(refused(bad).find("need f32 or bf16 [4, 2] or [8, 1] or [8]"), std::string::npos) << refused(bad);
  bad = good;
  bad.bias = TensorView::contiguous(scales.data(), {8}, DType::kF32);
  EXPECT_NE(refused(bad).find("bias is f32 [8], need f32 [4]"), std::string::npos) << refused(bad);
  bad = good;
  bad.weight.device = {DeviceKind::kCuda, 0};
  EXPECT_NE(refused(bad).find("weight is on cuda:0, need a CPU"), std::string::npos) << refused(bad);
}

TEST(Matmul4bit, RefusesWhatDoesNotFit) {
  const Case c{.n = 4, .k = 64};
  Weight4bit weight = weight_of(c);
  std::vector<float> bias;
  const auto packed = packed_of(c, weight, bias);
  ASSERT_TRUE(packed);
  const auto device = open_device({DeviceKind::kCpu, 0}, {});
  ASSERT_TRUE(device);
  const auto stream = (*device)->create_stream();
  std::vector<float> memory(256);
  const auto text = [&](const Dims& input, DType in, const Dims& out, std::int64_t offset) {
    const auto done = matmul_4bit({.input = TensorView::contiguous(memory.data(), input, in),
                                   .out = TensorView::contiguous(memory.data() + offset, out, DType::kF32)},
                                  *packed, **stream);
    return done ? std::string("nothing") : done.error().text();
  };
  EXPECT_EQ(text({2, 64}, DType::kF32, {2, 4}, 128), "nothing");
  EXPECT_NE(text({2, 60}, DType::kF32, {2, 4}, 128).find("input is f32 [2, 60], need f32 or bf16 [..., 64]"),
            std::string::npos);
  EXPECT_NE(text({2, 64}, DType::kF16, {2, 4}, 128).find("input is f16 [2, 64]"), std::string::npos);
  EXPECT_NE(text({2, 64}, DType::kF32, {4, 2}, 128).find("need f32 or bf16 [2, 4]"), std::string::npos);
  EXPECT_NE(text({2, 64}, DType::kF32, {2, 4}, 120).find("overlap"), std::string::npos);
  EXPECT_TRUE((*stream)->synchronize());
}

TEST(QuantizeWeight4bit, RefusesWhatIsNotFinite) {
  std::vector<float> weight(256);
  weight[3] = std::numeric_limits<float>::quiet_NaN();
  const auto quantized =
      gemm::quantize_weight_4bit(TensorView::contiguous(weight.data(), {4, 64}, DType::kF32), 32);
  ASSERT_FALSE(quantized);
  EXPECT_NE(quantized.error().text().find("weight[0, 3] is nan, need a finite number"), std::string::npos);
}

}  // namespace
}  // namespace tandem
