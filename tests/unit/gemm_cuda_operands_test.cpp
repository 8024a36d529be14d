// Which operands cuBLASLt reads in place, and what becomes of the others and of a bias. No GPU needed.
#include "gemm/cuda/operands.hpp"

#include <gtest/gtest.h>

#include <array>

#include "gemm/cuda/epilogue_kernel.hpp"
#include "gemm/operand_checks.hpp"

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
  return Operands({.a = &a, .b = &b, .out = &out}, {});
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
  Operands operands({.a = &a, .b = &b, .out = &out}, {});
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

Dims rows_of(const TensorView& view) {
  Dims rows = view.sizes;
  rows.erase(view.dim() - 1);
  return rows;
}
TensorView dense(Dims sizes, std::int64_t last) {
  sizes.push_back(last);
  return view_of(sizes, contiguous_strides(sizes));
}

/// The product, its operands and the pass over its sums.
struct Passed {
  Passed(const TensorView& out_view, const TensorView& bias_view)
      : out(out_view),
        bias(bias_view),
        a(dense(rows_of(out), 4)),
        b(dense({4}, out.sizes.back())),
        args{.a = &a, .b = &b, .out = &out, .bias = &bias},
        operands(args, {.rounds = false}) {}
  Passed(const Passed&) = delete;
  Passed& operator=(const Passed&) = delete;
  [[nodiscard]] EpiloguePass pass() const { return epilogue_pass_of(product_of(args), args, operands.out()); }

  TensorView out, bias, a, b;
  ProductArgs args;
  Operands operands;
};

TEST(GemmCudaOperands, SumsForAPassAreF32) {
  const TensorView out = view_of({6, 40}, {40, 1});
  const TensorView bias = view_of({40}, {1});
  Passed passed(out, bias);
  EXPECT_TRUE(passed.operands.out().is_copy);
  EXPECT_EQ(passed.operands.out().taken.dtype, DType::kF32);
  EXPECT_EQ(passed.operands.out().leading, 40);
  EXPECT_EQ(passed.operands.scratch_bytes(), 1024) << "6 * 40 * 4, to a multiple of 256";
  passed.operands.place(memory.data() + 4096);

  const EpiloguePass pass = passed.pass();
  EXPECT_EQ(static_cast<const void*>(pass.sums), memory.data() + 4096);
  EXPECT_EQ(pass.sums_stride, 40);
  EXPECT_EQ(pass.m, 6);
  EXPECT_EQ(pass.n, 40);
  EXPECT_EQ(pass.epilogue.out.data, out.data);
  EXPECT_EQ(pass.epilogue.num_row_dims, 1);
  EXPECT_EQ(pass.epilogue.out.row_strides[0], 40);
  EXPECT_EQ(pass.epilogue.out_dtype, DType::kBF16);
  EXPECT_EQ(pass.epilogue.bias.data, bias.data);
}

TEST(GemmCudaOperands, AnF32OutputTakesTheSumsAndThenTheBias) {
  const TensorView bias = view_of({8}, {3}, DType::kF32);
  const Passed in_place(view_of({6, 8}, {12, 1}, DType::kF32), bias);
  EXPECT_FALSE(in_place.operands.out().is_copy);
  EXPECT_EQ(in_place.operands.scratch_bytes(), 0);
  const EpiloguePass pass = in_place.pass();
  EXPECT_EQ(static_cast<const void*>(pass.sums), pass.epilogue.out.data);
  EXPECT_EQ(pass.sums_stride, pass.epilogue.out.row_strides[0]);
  EXPECT_EQ(pass.epilogue.bias.stride, 3);

  const Passed columns(view_of({6, 8}, {1, 6}, DType::kF32), bias);
  EXPECT_TRUE(columns.operands.out().is_copy) << "sums are made by rows";
  EXPECT_EQ(columns.pass().epilogue.out.col_stride, 6);

  Passed adding(view_of({6, 8}, {12, 1}, DType::kF32), bias);
  adding.args.addend = &adding.out;
  EXPECT_TRUE(Operands(adding.args, {.rounds = false}).out().is_copy) << "the addend is still to be read";
}

TEST(GemmCudaOperands, APassGoesByVectorsOnlyWhereAllFits) {
  const auto by_vectors = [](const TensorView& out) {
    Passed passed(out, view_of({out.sizes.back()}, {5}, DType::kF16, 2));
    passed.operands.place(memory.data() + 8192);
    return passed.pass().by_vectors;
  };
  for (const auto& [dtype, width] :
       {std::pair(DType::kBF16, 8), std::pair(DType::kF32, 4), std::pair(DType::kF8E5M2, 8)}) {
    const std::int64_t n = 4 * width;
    const std::int64_t vector_bytes = width * size_bytes(dtype);
    EXPECT_TRUE(by_vectors(view_of({6, n}, {n, 1}, dtype))) << to_string(dtype);
    EXPECT_TRUE(by_vectors(view_of({6, n}, {n + width, 1}, dtype, vector_bytes))) << to_string(dtype);
    EXPECT_TRUE(by_vectors(view_of({2, 3, n}, {n * 8, n * 2, 1}, dtype))) << to_string(dtype);
    EXPECT_FALSE(by_vectors(view_of({6, n}, {n, 1}, dtype, vector_bytes / 2))) << to_string(dtype);
    EXPECT_FALSE(by_vectors(view_of({6, n}, {n + width / 2, 1}, dtype))) << to_string(dtype);
    EXPECT_FALSE(by_vectors(view_of({6, n - 1}, {n, 1}, dtype))) << to_string(dtype);
    EXPECT_FALSE(by_vectors(view_of({6, n}, {2 * n, 2}, dtype))) << to_string(dtype);
    EXPECT_FALSE(by_vectors(view_of({8, n}, {1, 8}, dtype))) << to_string(dtype);
  }
}

// What the library wants of f8: factors along k, and 16 bytes.

Operands f8_operands(const TensorView& a, const TensorView& b) {
  const TensorView out = view_of({a.size(0), b.size(1)}, {b.size(1), 1});
  return Operands({.a = &a, .b = &b, .out = &out}, {});
}

TEST(GemmCudaOperands, F8FactorsGoAlongK) {
  const auto f8 = [](const Dims& sizes, const Dims& strides, std::int64_t offset = 0) {
    return view_of(sizes, strides, DType::kF8E4M3, offset);
  };
  const Operands in_place = f8_operands(f8({6, 32}, {48, 1}, 16), f8({32, 8}, {1, 32}));
  EXPECT_EQ(in_place.scratch_bytes(), 0);
  EXPECT_FALSE(in_place.a().is_column_major);
  EXPECT_TRUE(in_place.b().is_column_major);

  for (const TensorView& a : {f8({6, 32}, {1, 6}), f8({6, 32}, {40, 1}), f8({6, 32}, {32, 1}, 8)}) {
    const Operands operands = f8_operands(a, f8({32, 8}, {8, 1}));
    EXPECT_TRUE(operands.a().is_copy) << to_string(a);
    EXPECT_FALSE(operands.a().is_column_major);
    EXPECT_EQ(operands.a().leading, 32);
    EXPECT_TRUE(operands.b().is_copy);
    EXPECT_TRUE(operands.b().is_column_major);
    EXPECT_EQ(operands.b().taken.strides, (Dims{1, 32}));
    EXPECT_EQ(operands.b().leading, 32);
    EXPECT_EQ(operands.b().extent_bytes(), 256);
  }
}

TEST(GemmCudaOperands, ScalesGoIntoTheOrderOfTheLibrary) {
  const TensorView a = view_of({2, 16, 256}, {16 * 256, 256, 1}, DType::kF8E4M3);
  const TensorView b = view_of({256, 200}, {1, 256}, DType::kF8E4M3);
  const TensorView out = view_of({2, 16, 200}, {3200, 200, 1});
  const auto scales = [&](const TensorView& of_a, const TensorView& of_b, Scale a_kind, Scale b_kind) {
    return Operands({.a = &a, .b = &b, .out = &out, .a_scale = &of_a, .b_scale = &of_b},
                    {.a_scale = a_kind, .b_scale = b_kind});
  };
  const auto f32 = [](const Dims& sizes, const Dims& strides) {
    return view_of(sizes, strides, DType::kF32);
  };

  const Operands outer =
      scales(f32({2, 16, 1}, {16, 1, 7}), f32({1, 200}, {9, 2}), Scale::kRow, Scale::kColumn);
  EXPECT_FALSE(outer.a_scale().is_copy);
  EXPECT_TRUE(outer.b_scale().is_copy) << "has holes";
  EXPECT_EQ(outer.scratch_bytes(), 1024) << "200 * 4, to a multiple of 256";

  const Operands by_blocks =
      scales(f32({2, 16, 2}, {32, 2, 1}), f32({2, 2}, {2, 1}), Scale::kVector128, Scale::kBlock128);
  EXPECT_TRUE(by_blocks.a_scale().is_copy) << "a row's numbers lie side by side";
  EXPECT_EQ(by_blocks.a_scale().taken.strides, (Dims{16, 1, 32}));
  EXPECT_TRUE(by_blocks.b_scale().is_copy);
  EXPECT_EQ(by_blocks.b_scale().taken.strides, (Dims{1, 4}));
  EXPECT_EQ(by_blocks.b_scale().extent_bytes(), 32);
  EXPECT_EQ(by_blocks.a().caller.dim(), 2) << "rows that form a matrix are one";

  const Operands in_order =
      scales(f32({2, 16, 2}, {16, 1, 32}), f32({2, 200}, {200, 1}), Scale::kVector128, Scale::kVector128);
  EXPECT_EQ(in_order.scratch_bytes(), 0);
}

TEST(GemmCudaOperands, TheLibrarySaysWhatItRefuses) {
  Product product{.m = 4, .n = 16, .k = 32, .a = DType::kF8E4M3, .b = DType::kF8E5M2, .out = DType::kBF16};
  product.a_scale = product.b_scale = Scale::kTensor;
  EXPECT_EQ(library_refusal(product), "");
  EXPECT_TRUE(library_shares_of(product).begin()->rounds);
  EXPECT_EQ(library_shares_of(product).count, 2) << "sums, where it has no such output";
  product.a_scale = Scale::kRow;
  EXPECT_EQ(library_shares_of(product).count, 1);
  EXPECT_FALSE(library_shares_of(product).begin()->rounds) << "a row's numbers, and one for all columns";
  EXPECT_EQ(library_shares_of(product).begin()->a_scale, Scale::kNone);
  product.b_scale = Scale::kBlock128;
  EXPECT_EQ(library_refusal(product), "cuBLASLt scales f8 along k by the scales of both factors only");
  product.a_scale = Scale::kVector128;
  EXPECT_EQ(library_refusal(product), "");
  product.epilogue.bias = DType::kF32;
  EXPECT_FALSE(library_shares_of(product).begin()->rounds);
  EXPECT_EQ(library_shares_of(product).begin()->b_scale, Scale::kBlock128);
  product.k = 24;
  EXPECT_EQ(library_refusal(product), "cuBLASLt multiplies f8 where k is a multiple of 16 and n one of 8");
  product.a = DType::kF8E5M2;
  EXPECT_EQ(library_refusal(product), "cuBLASLt multiplies no f8e5m2 by f8e5m2");
  product.a = product.b = DType::kBF16;
  EXPECT_EQ(library_refusal(product), "cuBLASLt scales along k in products of f8 only");
}

}  // namespace
}  // namespace tandem::gemm::cuda
