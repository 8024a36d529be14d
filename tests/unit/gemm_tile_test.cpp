#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <tandem/base/numeric.hpp>
#include <vector>

#include "device/cpu/processor.hpp"
#include "gemm/cpu/tile_problem.hpp"

// The promise of the tile kernel: whatever the instruction set and the blocking, the bits of the plain loop
// below.

namespace tandem::gemm::cpu {
namespace {

struct Isa {
  std::string name;
  void (*run)(const TileProblem&, const Blocking&, const Scratch&);
};

std::vector<Isa> isas_of_this_processor() {
  std::vector<Isa> isas = {{"scalar", run_tile_scalar}};
  const auto best = tandem::cpu::best_isa();
  if (best != "scalar") isas.push_back({"avx2", run_tile_avx2});
  if (best == "avx512") isas.push_back({"avx512", run_tile_avx512});
  return isas;
}

// Elements as raw bits, whatever the type.
struct Values {
  DType dtype = DType::kF32;
  std::vector<std::byte> bytes;

  Values(DType type, std::int64_t count)
      : dtype(type), bytes(static_cast<std::size_t>(count * size_bytes(type)), std::byte{0xff}) {}
  [[nodiscard]] float get(std::int64_t i) const {
    if (dtype == DType::kF32) return read<float>(i);
    return dtype == DType::kBF16 ? to_f32(read<BF16>(i)) : to_f32(read<F16>(i));
  }
  void set(std::int64_t i, float value) {
    if (dtype == DType::kF32) return write(i, value);
    dtype == DType::kBF16 ? write(i, to_bf16(value)) : write(i, to_f16(value));
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
  DType in = DType::kF32;
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
        a_(c.in, 2 * c.sizes.m * c.sizes.k),
        b_(c.in, 2 * c.sizes.k * c.sizes.n),
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
    problem.a = rows_of(matrix(a_, case_.sizes.m, case_.sizes.k, case_.a_order), begin, case_.in);
    problem.b = matrix(b_, case_.sizes.k, case_.sizes.n, case_.b_order);
    problem.out = rows_of(matrix(out, case_.sizes.m, case_.sizes.n, case_.out_order), begin, case_.out);
    if (case_.bias) {
      problem.bias = bias_.bytes.data();
      problem.bias_stride = 1;
    }
    problem.in_dtype = case_.in;
    problem.out_dtype = case_.out;
    problem.accumulate = case_.accumulate;
    std::vector<float> memory(static_cast<std::size_t>(scratch_floats(problem.k, blocking)), std::nanf(""));
    isa.run(problem, blocking, cut_scratch(memory.data(), problem.k, blocking));
  }

  [[nodiscard]] ::testing::AssertionResult gives_expected_bits(const Isa& isa, const Blocking& blocking,
                                                               std::int64_t rows_a_call = 1 << 30) {
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
           << to_string(case_.in) << " -> " << to_string(case_.out) << ", blocking {" << blocking.rows << ", "
           << blocking.depth << ", " << blocking.panels << "}, orders " << static_cast<int>(case_.a_order)
           << static_cast<int>(case_.b_order) << static_cast<int>(case_.out_order) << ", " << rows_a_call
           << " rows a call: element " << i << " of memory is " << out.get(i) << ", expected "
           << expected_.get(i);
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
        for (std::int64_t p = 0; p < case_.sizes.k; ++p) {
          sum = std::fma(a_.get(i * a.row_stride + p * a.col_stride),
                         b_.get(p * b.row_stride + j * b.col_stride), sum);
        }
        if (case_.bias) sum += bias_.get(j);
        expected_.set(at, std::isnan(sum) ? std::bit_cast<float>(0x7fc00000U) : sum);
      }
    }
  }

  Case case_;
  Values a_;
  Values b_;
  Values bias_;
  Values before_;
  Values expected_{DType::kF32, 0};
};

constexpr Blocking kBlockings[] = {{}, {6, 7, 1}, {1, 1, 1}, {13, 64, 3}, {96, 5, 8}};

struct Types {
  DType in;
  DType out;
};
constexpr Types kTypes[] = {{DType::kF32, DType::kF32},
                            {DType::kBF16, DType::kBF16},
                            {DType::kBF16, DType::kF32},
                            {DType::kF16, DType::kF16},
                            {DType::kF16, DType::kF32}};

TEST(GemmTile, SameBitsForEveryIsaTypeAndBlocking) {
  for (const Isa& isa : isas_of_this_processor()) {
    for (const Types& types : kTypes) {
      for (const Sizes& sizes : {Sizes{1, 1, 1}, Sizes{5, 15, 9}, Sizes{7, 64, 16}, Sizes{19, 81, 33},
                                 Sizes{13, 130, 70}, Sizes{100, 17, 40}, Sizes{3, 521, 21}}) {
        Operands operands(Case{.sizes = sizes, .in = types.in, .out = types.out, .bias = sizes.m % 2 == 1});
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
                                   .in = types.in,
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
      Operands operands(Case{.sizes = {37, 40, 50}, .in = types.in, .out = types.out});
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
            Case{.sizes = {33, 65, 4}, .in = types.in, .out = types.out, .exponents = exponents});
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
        Operands operands(Case{.sizes = {9, 66, 20}, .in = types.in, .out = types.out, .bias = true});
        operands.put_a(3 * 20 + 7, special);
        operands.put_a(4 * 20 + 7, -special);
        operands.put_a(4 * 20 + 8, special);
        ASSERT_TRUE(operands.gives_expected_bits(isa, {})) << special;
        ASSERT_TRUE(operands.gives_expected_bits(isa, kBlockings[1])) << special;
      }
    }
  }
}

// All 65536 values of a narrow type through its conversions, as vectors (in b) and one by one (in a).
TEST(GemmTile, EveryNarrowValueTimesOneIsItself) {
  constexpr std::int64_t kAll = 65536;
  for (const Isa& isa : isas_of_this_processor()) {
    for (const DType dtype : {DType::kBF16, DType::kF16}) {
      Values one(dtype, 1);
      one.set(0, 1.0F);
      Values all(dtype, kAll);
      for (std::int64_t i = 0; i < kAll; ++i) all.write(i, static_cast<std::uint16_t>(i));
      for (const bool in_b : {true, false}) {
        Values out(dtype, kAll);
        TileProblem problem;
        problem.m = in_b ? 1 : kAll;
        problem.n = in_b ? kAll : 1;
        problem.k = 1;
        problem.a = {in_b ? one.bytes.data() : all.bytes.data(), 1, 1};
        problem.b = {in_b ? all.bytes.data() : one.bytes.data(), kAll, 1};
        problem.out = {out.bytes.data(), in_b ? kAll : 1, 1};
        problem.in_dtype = dtype;
        problem.out_dtype = dtype;
        const Blocking blocking;
        std::vector<float> memory(static_cast<std::size_t>(scratch_floats(1, blocking)));
        isa.run(problem, blocking, cut_scratch(memory.data(), 1, blocking));
        for (std::int64_t i = 0; i < kAll; ++i) {
          const float wide = all.get(i);
          Values want(dtype, 1);
          want.set(0, std::isnan(wide) ? std::bit_cast<float>(0x7fc00000U) : wide + 0.0F);
          ASSERT_EQ(out.read<std::uint16_t>(i), want.read<std::uint16_t>(0))
              << isa.name << " " << to_string(dtype) << " bits " << i << (in_b ? " in b" : " in a");
        }
      }
    }
  }
}

TEST(GemmTile, BlockingKeepsPackedPanelsBounded) {
  EXPECT_EQ(choose_blocking(0).panels, 8);
  EXPECT_EQ(choose_blocking(4096).panels, 8);
  EXPECT_EQ(choose_blocking(8192).panels, 4);
  EXPECT_EQ(choose_blocking(1 << 20).panels, 1);
}

}  // namespace
}  // namespace tandem::gemm::cpu
