#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <tandem/base/numeric.hpp>
#include <vector>

#include "device/cpu/processor.hpp"
#include "gemm/cpu/tile_product.hpp"

// The promise of the tile kernels: whatever the instruction set and the blocking, the bits of the plain loop
// below.

namespace tandem::gemm::cpu {
namespace {

struct Isa {
  std::string name;
  const TileKernels* kernels;
  bool only_pairs = false;
};

std::vector<Isa> isas_of_this_processor() {
  std::vector<Isa> isas = {{"scalar", &kTileScalar}};
  const auto best = tandem::cpu::best_isa();
  if (best != "scalar") isas.push_back({"avx2", &kTileAvx2});
  if (best.starts_with("avx512")) isas.push_back({"avx512", &kTileAvx512});
  if (best == "avx512_bf16") isas.push_back({"avx512_bf16", &kTileAvx512Bf16, true});
  return isas;
}

/// Packs b whole, and multiplies.
void run_on(const Isa& isa, const TileProblem& problem, const Blocking& blocking) {
  const PanelForm form = isa.kernels->form_of(problem);
  const std::int64_t stride = panel_floats(problem.k, form);
  const std::int64_t rows = rows_of_panel(problem.k, form);
  std::vector<float> packed(static_cast<std::size_t>(panels_of(problem.n) * stride), std::nanf(""));
  std::vector<float> memory(static_cast<std::size_t>(scratch_floats(rows, blocking)), std::nanf(""));
  isa.kernels->pack(problem, 0, problem.n, packed.data());
  isa.kernels->multiply(problem, {packed.data(), stride, form}, blocking,
                        cut_scratch(memory.data(), rows, blocking));
}

/// x * y + sum by a processor that takes subnormals for zeros, and gives zeros for them. A result is one if
/// its 24 bits are below the smallest normal number, whatever their exponent.
float flushing_fma(float x, float y, float sum) {
  const auto flushed = [](float value) {
    return std::fpclassify(value) == FP_SUBNORMAL ? std::copysign(0.0F, value) : value;
  };
  x = flushed(x);
  y = flushed(y);
  sum = flushed(sum);
  const double nearly = static_cast<double>(x) * y + sum;  // the product of two bf16 is exact
  const float result = std::fma(x, y, sum);
  return std::fabs(nearly) < 0x1p-126 - 0x1p-151 ? std::copysign(0.0F, result) : result;
}

// Elements as raw bits, whatever the type.
struct Values {
  DType dtype = DType::kF32;
  std::vector<std::byte> bytes;

  Values(DType type, std::int64_t count)
      : dtype(type), bytes(static_cast<std::size_t>(count * size_bytes(type)), std::byte{0xff}) {}
  [[nodiscard]] float get(std::int64_t i) const {
    switch (dtype) {
      case DType::kBF16:
        return to_f32(read<BF16>(i));
      case DType::kF16:
        return to_f32(read<F16>(i));
      case DType::kF8E4M3:
        return to_f32(read<F8E4M3>(i));
      case DType::kF8E5M2:
        return to_f32(read<F8E5M2>(i));
      default:
        return read<float>(i);
    }
  }
  void set(std::int64_t i, float value) {
    switch (dtype) {
      case DType::kBF16:
        return write(i, to_bf16(value));
      case DType::kF16:
        return write(i, to_f16(value));
      case DType::kF8E4M3:
        return write(i, to_f8e4m3(value));
      case DType::kF8E5M2:
        return write(i, to_f8e5m2(value));
      default:
        return write(i, value);
    }
  }
  template <class T>
  [[nodiscard]] T read(std::int64_t i) const {
    T value;
    std::memcpy(&value, &bytes[static_cast<std::size_t>(i) * sizeof(T)], sizeof(T));
    return value;
  }
  template <class T>
  void write(std::int64_t i, T value) {
    std::memcpy(&bytes[static_cast<std::size_t>(i) * sizeof(T)], &value, sizeof(T));
  }
};

struct Sizes {
  std::int64_t m;
  std::int64_t n;
  std::int64_t k;
};

enum class Order { kRows, kColumns, kNeither };

Matrix matrix(Values& values, std::int64_t rows, std::int64_t cols, Order order) {
  switch (order) {
    case Order::kRows:
      return {values.bytes.data(), cols, 1};
    case Order::kColumns:
      return {values.bytes.data(), 1, rows};
    case Order::kNeither:
      return {values.bytes.data(), 2 * cols, 2};
  }
  return {};
}

struct Case {
  Sizes sizes;
  DType a = DType::kF32;
  DType b = DType::kF32;
  DType out = DType::kF32;
  Order a_order = Order::kRows;
  Order b_order = Order::kRows;
  Order out_order = Order::kRows;
  bool bias = false;
  bool accumulate = false;
  /// Powers of two around 1 that the inputs spread over; at 60 products overflow and vanish.
  int exponents = 3;
};

// Operands, and the result twice: as the plain loop computes it, and as it was before.
class Operands {
 public:
  explicit Operands(const Case& c)
      : case_(c),
        a_(c.a, 2 * c.sizes.m * c.sizes.k),
        b_(c.b, 2 * c.sizes.k * c.sizes.n),
        bias_(c.out, c.sizes.n),
        before_(c.out, 2 * c.sizes.m * c.sizes.n) {
    std::mt19937 random(static_cast<unsigned>(c.sizes.m * 10007 + c.sizes.n * 101 + c.sizes.k));
    for (Values* values : {&a_, &b_, &bias_, &before_}) {
      if (values == &before_ && !c.accumulate) continue;
      const auto count = static_cast<std::int64_t>(values->bytes.size()) / size_bytes(values->dtype);
      for (std::int64_t i = 0; i < count; ++i) values->set(i, value(random));
    }
    expected_ = before_;
    plain_loop();
  }

  void put_a(std::int64_t i, float value) {
    a_.set(i, value);
    expected_ = before_;
    plain_loop();
  }

  // Rows [begin, end) computed by `isa`, the rest as before.
  void run(const Isa& isa, const Blocking& blocking, std::int64_t begin, std::int64_t end, Values& out) {
    TileProblem problem;
    problem.m = end - begin;
    problem.n = case_.sizes.n;
    problem.k = case_.sizes.k;
    problem.a = rows_of(matrix(a_, case_.sizes.m, case_.sizes.k, case_.a_order), begin, case_.a);
    problem.b = matrix(b_, case_.sizes.k, case_.sizes.n, case_.b_order);
    problem.out = rows_of(matrix(out, case_.sizes.m, case_.sizes.n, case_.out_order), begin, case_.out);
    if (case_.bias) {
      problem.bias = bias_.bytes.data();
      problem.bias_stride = 1;
    }
    problem.a_dtype = case_.a;
    problem.b_dtype = case_.b;
    problem.out_dtype = case_.out;
    problem.accumulate = case_.accumulate;
    run_on(isa, problem, blocking);
  }

  [[nodiscard]] ::testing::AssertionResult gives_expected_bits(const Isa& isa, const Blocking& blocking,
                                                               std::int64_t rows_a_call = 1 << 30) {
    if (isa.only_pairs && !adds_pairs()) return ::testing::AssertionSuccess();
    Values out = before_;
    for (std::int64_t begin = 0; begin < case_.sizes.m; begin += rows_a_call) {
      run(isa, blocking, begin, std::min(case_.sizes.m, begin + rows_a_call), out);
    }
    if (out.bytes == expected_.bytes) return ::testing::AssertionSuccess();
    std::size_t at = 0;
    while (out.bytes[at] == expected_.bytes[at]) ++at;
    const auto i = static_cast<std::int64_t>(at) / size_bytes(case_.out);
    return ::testing::AssertionFailure()
           << isa.name << ", " << case_.sizes.m << "x" << case_.sizes.n << "x" << case_.sizes.k << " "
           << to_string(case_.a) << " * " << to_string(case_.b) << " -> " << to_string(case_.out)
           << ", blocking {" << blocking.rows << ", " << blocking.depth << "}, orders "
           << static_cast<int>(case_.a_order) << static_cast<int>(case_.b_order)
           << static_cast<int>(case_.out_order) << ", " << rows_a_call << " rows a call: element " << i
           << " of memory is " << out.get(i) << ", expected " << expected_.get(i);
  }

 private:
  [[nodiscard]] float value(std::mt19937& random) const {
    const float fraction = std::uniform_real_distribution<float>(-1.0F, 1.0F)(random);
    return std::ldexp(fraction,
                      std::uniform_int_distribution<int>(-case_.exponents, case_.exponents)(random));
  }

  static Matrix rows_of(Matrix matrix, std::int64_t begin, DType dtype) {
    matrix.data = static_cast<std::byte*>(matrix.data) + begin * matrix.row_stride * size_bytes(dtype);
    return matrix;
  }

  void plain_loop() {
    const Matrix a = matrix(a_, case_.sizes.m, case_.sizes.k, case_.a_order);
    const Matrix b = matrix(b_, case_.sizes.k, case_.sizes.n, case_.b_order);
    const Matrix out = matrix(expected_, case_.sizes.m, case_.sizes.n, case_.out_order);
    for (std::int64_t i = 0; i < case_.sizes.m; ++i) {
      for (std::int64_t j = 0; j < case_.sizes.n; ++j) {
        const std::int64_t at = i * out.row_stride + j * out.col_stride;
        float sum = case_.accumulate ? before_.get(at) : 0.0F;
        const auto factors = [&](std::int64_t p) {
          if (p >= case_.sizes.k) return std::pair(0.0F, 0.0F);
          return std::pair(a_.get(i * a.row_stride + p * a.col_stride),
                           b_.get(p * b.row_stride + j * b.col_stride));
        };
        for (std::int64_t p = 0; p < case_.sizes.k; p += adds_pairs() ? 2 : 1) {
          if (adds_pairs()) {
            const auto [x, y] = factors(p + 1);
            sum = flushing_fma(x, y, sum);
          }
          const auto [x, y] = factors(p);
          sum = adds_pairs() ? flushing_fma(x, y, sum) : std::fma(x, y, sum);
        }
        if (case_.bias) sum = adds_pairs() ? flushing_fma(1.0F, bias_.get(j), sum) : sum + bias_.get(j);
        expected_.set(at, std::isnan(sum) ? std::bit_cast<float>(0x7fc00000U) : sum);
      }
    }
  }
  [[nodiscard]] bool adds_pairs() const { return case_.a == DType::kBF16 && case_.b == DType::kBF16; }

  Case case_;
  Values a_;
  Values b_;
  Values bias_;
  Values before_;
  Values expected_{DType::kF32, 0};
};

constexpr Blocking kBlockings[] = {{}, {6, 8}, {1, 2}, {13, 64}, {96, 6}};

struct Types {
  DType a;
  DType b;
  DType out;
};
constexpr Types kTypes[] = {
    {DType::kF32, DType::kF32, DType::kF32},       {DType::kBF16, DType::kBF16, DType::kBF16},
    {DType::kBF16, DType::kBF16, DType::kF32},     {DType::kF16, DType::kF16, DType::kF16},
    {DType::kF16, DType::kF16, DType::kF32},       {DType::kF8E4M3, DType::kF8E5M2, DType::kF32},
    {DType::kF8E5M2, DType::kF8E4M3, DType::kF32}, {DType::kBF16, DType::kF8E4M3, DType::kF32},
    {DType::kF8E4M3, DType::kBF16, DType::kF32}};

TEST(GemmTile, SameBitsForEveryIsaTypeAndBlocking) {
  for (const Isa& isa : isas_of_this_processor()) {
    for (const Types& types : kTypes) {
      for (const Sizes& sizes : {Sizes{1, 1, 1}, Sizes{5, 15, 9}, Sizes{7, 64, 16}, Sizes{19, 81, 33},
                                 Sizes{13, 130, 70}, Sizes{100, 17, 40}, Sizes{3, 521, 21}}) {
        Operands operands(
            Case{.sizes = sizes, .a = types.a, .b = types.b, .out = types.out, .bias = sizes.m % 2 == 1});
        for (const Blocking& blocking : kBlockings) ASSERT_TRUE(operands.gives_expected_bits(isa, blocking));
      }
    }
  }
}

TEST(GemmTile, SameBitsForEveryOrderInMemory) {
  constexpr Order kOrders[] = {Order::kRows, Order::kColumns, Order::kNeither};
  for (const Isa& isa : isas_of_this_processor()) {
    for (const Types& types : kTypes) {
      for (const Order a : kOrders) {
        for (const Order b : kOrders) {
          for (const Order out : kOrders) {
            Operands operands(Case{.sizes = {21, 70, 35},
                                   .a = types.a,
                                   .b = types.b,
                                   .out = types.out,
                                   .a_order = a,
                                   .b_order = b,
                                   .out_order = out,
                                   .bias = true,
                                   .accumulate = types.out == DType::kF32});
            ASSERT_TRUE(operands.gives_expected_bits(isa, kBlockings[0]));
            ASSERT_TRUE(operands.gives_expected_bits(isa, kBlockings[3]));
          }
        }
      }
    }
  }
}

TEST(GemmTile, SameBitsHoweverTheRowsAreSplit) {
  for (const Isa& isa : isas_of_this_processor()) {
    for (const Types& types : kTypes) {
      Operands operands(Case{.sizes = {37, 40, 50}, .a = types.a, .b = types.b, .out = types.out});
      for (const std::int64_t rows_a_call : {1, 2, 3, 5, 6, 7, 12, 36}) {
        ASSERT_TRUE(operands.gives_expected_bits(isa, {}, rows_a_call));
      }
    }
  }
}

TEST(GemmTile, SumsThatOverflowAndVanishHaveTheBitsOfThePlainLoop) {
  for (const Isa& isa : isas_of_this_processor()) {
    for (const Types& types : kTypes) {
      for (const int exponents : {8, 14, 30, 66}) {
        Operands operands(
            Case{.sizes = {33, 65, 4}, .a = types.a, .b = types.b, .out = types.out, .exponents = exponents});
        ASSERT_TRUE(operands.gives_expected_bits(isa, {})) << exponents;
      }
    }
  }
}

TEST(GemmTile, NanAndInfinityReachTheWholeRowInOneForm) {
  const float nan_with_payload = std::bit_cast<float>(0xffc12345U);
  for (const Isa& isa : isas_of_this_processor()) {
    for (const Types& types : kTypes) {
      for (const float special : {nan_with_payload, INFINITY, -INFINITY, -0.0F}) {
        Operands operands(
            Case{.sizes = {9, 66, 20}, .a = types.a, .b = types.b, .out = types.out, .bias = true});
        operands.put_a(3 * 20 + 7, special);
        operands.put_a(4 * 20 + 7, -special);
        operands.put_a(4 * 20 + 8, special);
        ASSERT_TRUE(operands.gives_expected_bits(isa, {})) << special;
        ASSERT_TRUE(operands.gives_expected_bits(isa, kBlockings[1])) << special;
      }
    }
  }
}

// Sums and products on both sides of the smallest normal number, where flushing decides.
TEST(GemmTile, SubnormalsOfBf16AreZerosByEveryIsa) {
  std::mt19937 random(3);
  const auto near = [&](int exponent, int around) {
    const int e = exponent + std::uniform_int_distribution<int>(-around, around)(random);
    const float fraction = 1.0F + static_cast<float>(random() % 128) / 128.0F;
    return std::ldexp(random() % 2 == 0 ? fraction : -fraction, e);
  };
  constexpr std::int64_t kColumns = 4096;
  int num_flushed = 0;
  for (int round = 0; round < 40; ++round) {
    Values a(DType::kBF16, 2);
    Values b(DType::kBF16, 2 * kColumns);
    Values start(DType::kF32, kColumns);
    a.set(0, near(-60, 3));
    a.set(1, near(-75, 3));
    for (std::int64_t j = 0; j < kColumns; ++j) {
      b.set(j, near(-66, 5));
      b.set(kColumns + j, near(-75, 3));
      start.set(j, near(-126, 1));
      if (j % 4 == 0) {  // 2^-126 - 2^-150, which fma rounds up
        a.set(1, 0x1p-75F);
        b.set(kColumns + j, -0x1p-75F);
        b.set(j, 0.0F);
        start.set(j, 0x1p-126F);
      }
    }
    std::vector<float> expected(kColumns);
    for (std::int64_t j = 0; j < kColumns; ++j) {
      const float odd = flushing_fma(a.get(1), b.get(kColumns + j), start.get(j));
      const auto idx = static_cast<std::size_t>(j);
      expected[idx] = flushing_fma(a.get(0), b.get(j), odd);
      if (expected[idx] == 0 || odd == 0) ++num_flushed;
    }
    for (const Isa& isa : isas_of_this_processor()) {
      Values out = start;
      TileProblem problem;
      problem.m = 1;
      problem.n = kColumns;
      problem.k = 2;
      problem.a = {a.bytes.data(), 2, 1};
      problem.b = {b.bytes.data(), kColumns, 1};
      problem.out = {out.bytes.data(), kColumns, 1};
      problem.a_dtype = problem.b_dtype = DType::kBF16;
      problem.accumulate = true;
      run_on(isa, problem, {});
      ASSERT_EQ(std::memcmp(out.bytes.data(), expected.data(), out.bytes.size()), 0) << isa.name;
    }
  }
  EXPECT_GT(num_flushed, 1000);
}

// All values of a narrow type through its conversions, as vectors (in b) and one by one (in a).
TEST(GemmTile, EveryNarrowValueTimesOneIsItself) {
  for (const Isa& isa : isas_of_this_processor()) {
    for (const DType dtype : {DType::kBF16, DType::kF16, DType::kF8E4M3, DType::kF8E5M2}) {
      if (isa.only_pairs && dtype != DType::kBF16) continue;
      const bool is_f8 = size_bytes(dtype) == 1;
      const std::int64_t count = is_f8 ? 256 : 65536;
      const DType out_dtype = is_f8 ? DType::kF32 : dtype;
      Values one(dtype, 1);
      one.set(0, 1.0F);
      Values all(dtype, count);
      for (std::int64_t i = 0; i < count; ++i)
        is_f8 ? all.write(i, static_cast<std::uint8_t>(i)) : all.write(i, static_cast<std::uint16_t>(i));
      for (const bool in_b : {true, false}) {
        Values out(out_dtype, count);
        TileProblem problem;
        problem.m = in_b ? 1 : count;
        problem.n = in_b ? count : 1;
        problem.k = 1;
        problem.a = {in_b ? one.bytes.data() : all.bytes.data(), 1, 1};
        problem.b = {in_b ? all.bytes.data() : one.bytes.data(), count, 1};
        problem.out = {out.bytes.data(), in_b ? count : 1, 1};
        problem.a_dtype = dtype;
        problem.b_dtype = dtype;
        problem.out_dtype = out_dtype;
        run_on(isa, problem, {});
        for (std::int64_t i = 0; i < count; ++i) {
          const float wide = all.get(i);
          const bool is_flushed = dtype == DType::kBF16 && std::fpclassify(wide) == FP_SUBNORMAL;
          Values want(out_dtype, 1);
          want.set(0, std::isnan(wide) ? std::bit_cast<float>(0x7fc00000U) : is_flushed ? 0.0F : wide + 0.0F);
          ASSERT_EQ(std::memcmp(&out.bytes[static_cast<std::size_t>(i * size_bytes(out_dtype))],
                                want.bytes.data(), want.bytes.size()),
                    0)
              << isa.name << " " << to_string(dtype) << " bits " << i << (in_b ? " in b" : " in a") << ": "
              << out.get(i);
        }
      }
    }
  }
}

// With blocks of a few columns, and packed at once.
TEST(GemmTile, RowsThatComeByAndByHaveTheBitsOfTheWholeProduct) {
  for (const Isa& isa : isas_of_this_processor()) {
    if (isa.only_pairs) continue;
    Values a(DType::kBF16, 40 * 50);
    Values b(DType::kBF16, 50 * 200);
    for (std::int64_t i = 0; i < 40 * 50; ++i) a.set(i, static_cast<float>(i % 37) - 18.5F);
    for (std::int64_t i = 0; i < 50 * 200; ++i) b.set(i, static_cast<float>(i % 41) - 20.25F);
    Values whole(DType::kBF16, 40 * 200);
    Values parts = whole;
    TileProblem problem;
    problem.m = 40;
    problem.n = 200;
    problem.k = 50;
    problem.a = {a.bytes.data(), 50, 1};
    problem.b = {b.bytes.data(), 200, 1};
    problem.out = {whole.bytes.data(), 200, 1};
    problem.a_dtype = problem.b_dtype = problem.out_dtype = DType::kBF16;
    ASSERT_TRUE(run(problem, *isa.kernels));
    const RowProduct rows = RowProduct::make(problem, *isa.kernels).value();
    for (const std::int64_t first : {30, 0, 10, 20}) {
      TileProblem part = problem;
      part.m = 10;
      part.a.data = a.bytes.data() + first * 50 * 2;
      part.out.data = parts.bytes.data() + first * 200 * 2;
      ASSERT_TRUE(rows.multiply(part));
    }
    EXPECT_EQ(parts.bytes, whole.bytes) << isa.name;
  }
}

TEST(GemmTile, PackedPanelsAreBounded) {
  EXPECT_EQ(panels_at_once(1 << 20, 1024, PanelForm::kSteps), 32);
  EXPECT_EQ(panels_at_once(1 << 20, 1024, PanelForm::kPairs), 64);
  EXPECT_EQ(panels_at_once(100, 1024, PanelForm::kSteps), 2);
  EXPECT_EQ(panels_at_once(1 << 20, 1 << 20, PanelForm::kSteps), 1);
  EXPECT_EQ(panels_at_once(0, 0, PanelForm::kSteps), 1);
}

}  // namespace
}  // namespace tandem::gemm::cpu
