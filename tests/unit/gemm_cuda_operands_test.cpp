// Which operands cuBLASLt reads in place, and what becomes of the others and of a bias. No GPU needed.
#include "gemm/cuda/operands.hpp"

#include <gtest/gtest.h>

#include <array>

#include "gemm/cuda/rounding.hpp"

namespace tandem::gemm::cuda {
namespace {

alignas(256) std::array<std::byte, 1 << 16> memory;

TensorView view_of(const Dims& sizes, const Dims& strides, DType dtype = DType::kBF16,
                   std::int64_t offset_bytes = 0) {
  TensorView view = TensorView::contiguous(memory.data() + offset_bytes, sizes, dtype);
  view.strides = strides;
  return view;
}

Operands operands_of(const TensorView& a) {
  const TensorView b = view_of({a.size(1), 8}, {8, 1});
  const TensorView out = view_of({a.size(0), 8}, {8, 1});
  return Operands({.a = &a, .b = &b, .out = &out});
}

TEST(GemmCudaOperands, RowsAndColumnsAreReadInPlace) {
  struct Case {
    Dims sizes;
    Dims strides;
    bool is_column_major;
    std::int64_t leading;
  };
  const Case cases[] = {{{6, 4}, {4, 1}, false, 4},  {{6, 4}, {9, 1}, false, 9},  {{6, 4}, {1, 6}, true, 6},
                        {{6, 4}, {1, 11}, true, 11}, {{1, 4}, {0, 1}, false, 4},  {{1, 4}, {99, 7}, true, 7},
                        {{6, 1}, {1, 99}, false, 1}, {{6, 1}, {3, 99}, false, 3}, {{1, 1}, {0, 0}, false, 1}};
  for (const Case& c : cases) {
    const Operands operands = operands_of(view_of(c.sizes, c.strides));
    EXPECT_FALSE(operands.a().is_copy) << to_string(c.sizes) << to_string(c.strides);
    EXPECT_EQ(operands.a().is_column_major, c.is_column_major) << to_string(c.sizes) << to_string(c.strides);
    EXPECT_EQ(operands.a().leading, c.leading) << to_string(c.sizes) << to_string(c.strides);
    EXPECT_EQ(operands.scratch_bytes(), 0);
  }
}

TEST(GemmCudaOperands, OtherStridesAreCopied) {
  for (const Dims& strides : {Dims{8, 2}, Dims{3, 1}, Dims{0, 1}, Dims{1, 0}, Dims{1, 5}}) {
    const Operands operands = operands_of(view_of({6, 4}, strides));
    EXPECT_TRUE(operands.a().is_copy) << to_string(strides);
    EXPECT_FALSE(operands.a().is_column_major) << to_string(strides);
    EXPECT_EQ(operands.a().leading, 4);
    EXPECT_EQ(operands.a().alignment(), 128);
    EXPECT_EQ(operands.scratch_bytes(), 256) << "6 * 4 * 2, to a multiple of 256";
  }
}

TEST(GemmCudaOperands, CopiesLieOneBehindTheOther) {
  const TensorView a = view_of({6, 4}, {8, 2});
  const TensorView b = view_of({4, 8}, {8, 1});
  const TensorView out = view_of({6, 8}, {1, 6});
  Operands operands({.a = &a, .b = &b, .out = &out});
  EXPECT_TRUE(operands.a().is_copy);
  EXPECT_FALSE(operands.b().is_copy);
  EXPECT_TRUE(operands.out().is_copy) << "an output is made by rows";
  EXPECT_EQ(operands.scratch_bytes(), 2 * 256);
  std::byte* const scratch = memory.data() + 4096;
  operands.place(scratch);
  EXPECT_EQ(operands.a().taken.data, scratch);
  EXPECT_EQ(operands.b().taken.data, memory.data());
  EXPECT_EQ(operands.out().taken.data, scratch + 256);
}

TEST(GemmCudaOperands, AlignmentIsThatOfTheAddress) {
  for (const auto& [offset, alignment] : {std::pair(0, 128), std::pair(256, 128), std::pair(64, 64),
                                          std::pair(2, 2), std::pair(48, 16), std::pair(130, 2)}) {
    EXPECT_EQ(operands_of(view_of({6, 4}, {4, 1}, DType::kBF16, offset)).a().alignment(), alignment)
        << offset;
  }
  TensorView nowhere = view_of({6, 4}, {4, 1});
  nowhere.data = nullptr;
  EXPECT_EQ(operands_of(nowhere).a().alignment(), 128);
}

Operands with_bias(const TensorView& out, const TensorView& bias) {
  const TensorView a = view_of({out.size(0), 4}, {4, 1});
  const TensorView b = view_of({4, out.size(1)}, {out.size(1), 1});
  return Operands({.a = &a, .b = &b, .out = &out, .bias = &bias});
}

TEST(GemmCudaOperands, AProductWithABiasIsF32) {
  const TensorView out = view_of({6, 40}, {40, 1});
  const TensorView bias = view_of({40}, {1});
  Operands operands = with_bias(out, bias);
  EXPECT_TRUE(operands.out().is_copy);
  EXPECT_EQ(operands.out().taken.dtype, DType::kF32);
  EXPECT_EQ(operands.out().leading, 40);
  EXPECT_EQ(operands.scratch_bytes(), 1024) << "6 * 40 * 4, to a multiple of 256";
  operands.place(memory.data() + 4096);

  const Rounding rounding = rounding_of(operands.out(), bias);
  EXPECT_EQ(static_cast<const void*>(rounding.product), memory.data() + 4096);
  EXPECT_EQ(rounding.product_stride, 40);
  EXPECT_EQ(rounding.m, 6);
  EXPECT_EQ(rounding.n, 40);
  EXPECT_EQ(rounding.out.data, out.data);
  EXPECT_EQ(rounding.out.row_stride, 40);
  EXPECT_EQ(rounding.out_dtype, DType::kBF16);
  EXPECT_EQ(rounding.bias, bias.data);
}

TEST(GemmCudaOperands, AnF32OutputTakesTheProductAndThenTheBias) {
  const TensorView bias = view_of({8}, {3}, DType::kF32);
  const TensorView rows = view_of({6, 8}, {12, 1}, DType::kF32);
  const Operands in_place = with_bias(rows, bias);
  EXPECT_FALSE(in_place.out().is_copy);
  EXPECT_EQ(in_place.scratch_bytes(), 0);
  const Rounding rounding = rounding_of(in_place.out(), bias);
  EXPECT_EQ(static_cast<const void*>(rounding.product), rounding.out.data);
  EXPECT_EQ(rounding.product_stride, rounding.out.row_stride);
  EXPECT_EQ(rounding.bias_stride, 3);

  const Operands columns = with_bias(view_of({6, 8}, {1, 6}, DType::kF32), bias);
  EXPECT_TRUE(columns.out().is_copy) << "an output is made by rows";
  EXPECT_EQ(rounding_of(columns.out(), bias).out.col_stride, 6);
}

TEST(GemmCudaOperands, RoundingGoesByVectorsOnlyWhereAllFits) {
  const auto by_vectors = [](const TensorView& out) {
    const TensorView bias = view_of({out.size(1)}, {5}, out.dtype, 2);
    Operands operands = with_bias(out, bias);
    operands.place(memory.data() + 8192);
    return rounding_of(operands.out(), bias).by_vectors;
  };
  for (const auto& [dtype, width] : {std::pair(DType::kBF16, 8), std::pair(DType::kF32, 4)}) {
    const std::int64_t n = 4 * width;
    EXPECT_TRUE(by_vectors(view_of({6, n}, {n, 1}, dtype))) << to_string(dtype);
    EXPECT_TRUE(by_vectors(view_of({6, n}, {n + width, 1}, dtype, 16))) << to_string(dtype);
    EXPECT_FALSE(by_vectors(view_of({6, n}, {n, 1}, dtype, 8))) << to_string(dtype);
    EXPECT_FALSE(by_vectors(view_of({6, n}, {n + width / 2, 1}, dtype))) << to_string(dtype);
    EXPECT_FALSE(by_vectors(view_of({6, n - 1}, {n, 1}, dtype))) << to_string(dtype);
    EXPECT_FALSE(by_vectors(view_of({6, n}, {2 * n, 2}, dtype))) << to_string(dtype);
    EXPECT_FALSE(by_vectors(view_of({8, n}, {1, 8}, dtype))) << to_string(dtype);
  }
}

}  // namespace
}  // namespace tandem::gemm::cuda
