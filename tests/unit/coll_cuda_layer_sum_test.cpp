// What the sum kernel of the GPU is told: where layers and elements are, and when it may go by vectors. Needs
// no GPU.
#include <gtest/gtest.h>

#include <array>

#include "coll/cuda/layer_sum.hpp"

namespace tandem::coll::cuda {
namespace {

alignas(64) std::array<std::byte, 1 << 16> memory;

TensorView view_of(const Dims& sizes, const Dims& strides, DType dtype, std::int64_t offset_bytes = 0) {
  TensorView view = TensorView::contiguous(memory.data() + offset_bytes, sizes, dtype);
  view.strides = strides;
  return view;
}

ReduceStackArgs stack_of(std::int64_t layers, const TensorView& out, DType in = DType::kBF16) {
  Dims sizes = out.sizes;
  sizes.insert(0, layers);
  return {.stack = TensorView::contiguous(memory.data(), sizes, in), .out = out, .bias = {}};
}

// Where the kernel finds layer r.
const void* layer_at(const LayerSum& sum, int r) {
  return static_cast<const std::byte*>(sum.layers[r % kMaxAddresses]) + r / kMaxAddresses * sum.round_bytes;
}
// Where it puts element `at`.
std::int64_t offset_of(const LayerSum& sum, std::int64_t at) {
  std::int64_t offset = 0;
  for (int d = sum.num_dims - 1; d >= 0; --d) {
    offset += at % sum.sizes[d] * sum.strides[d];
    at /= sum.sizes[d];
  }
  return offset;
}

TEST(CollCudaLayerSum, FindsEveryLayerOfAStack) {
  const LayerSum sum = layer_sum_of(stack_of(40, view_of({3, 8}, {8, 1}, DType::kF32)));
  EXPECT_EQ(sum.num_layers, 40);
  for (int r = 0; r < 40; ++r) EXPECT_EQ(layer_at(sum, r), memory.data() + r * 3 * 8 * 2) << r;
}

TEST(CollCudaLayerSum, MergesDimsThatAreOne) {
  struct Case {
    Dims sizes;
    Dims strides;
    int num_dims;
  };
  const Case cases[] = {{{4, 6, 16}, {96, 16, 1}, 1},
                        {{4, 6, 16}, {200, 16, 1}, 2},
                        {{4, 6, 16}, {16, 64, 1}, 3},
                        {{4, 1, 16}, {16, 777, 1}, 1},
                        {{1, 1}, {5, 5}, 1},
                        {{6, 16}, {1, 6}, 2},
                        {{}, {}, 1}};
  for (const Case& c : cases) {
    const LayerSum sum = layer_sum_of(stack_of(2, view_of(c.sizes, c.strides, DType::kBF16)));
    EXPECT_EQ(sum.num_dims, c.num_dims) << to_string(c.sizes) << to_string(c.strides);
    EXPECT_EQ(sum.num_elements, numel(c.sizes));
    for (std::int64_t i = 0; i < numel(c.sizes); ++i) {
      std::int64_t want = 0;
      std::int64_t rest = i;
      for (int d = c.sizes.size() - 1; d >= 0; --d) {
        want += rest % c.sizes[d] * c.strides[d];
        rest /= c.sizes[d];
      }
      ASSERT_EQ(offset_of(sum, i), want) << to_string(c.sizes) << to_string(c.strides) << " element " << i;
    }
  }
}

TEST(CollCudaLayerSum, GoesByVectorsOnlyWhereAllFits) {
  const auto by_vectors = [](const ReduceStackArgs& args) { return layer_sum_of(args).by_vectors; };
  const TensorView whole = view_of({4, 16}, {16, 1}, DType::kBF16);
  EXPECT_TRUE(by_vectors(stack_of(3, whole)));
  EXPECT_TRUE(by_vectors(stack_of(3, view_of({4, 16}, {24, 1}, DType::kBF16))));
  EXPECT_TRUE(by_vectors(stack_of(3, view_of({4, 6}, {6, 1}, DType::kF32), DType::kBF16)));  // 24 in one row
  EXPECT_FALSE(by_vectors(stack_of(3, view_of({4, 6}, {8, 1}, DType::kBF16)))) << "rows of 6";
  EXPECT_FALSE(by_vectors(stack_of(3, view_of({4, 16}, {20, 1}, DType::kBF16)))) << "rows at odd places";
  EXPECT_FALSE(by_vectors(stack_of(3, view_of({4, 16}, {32, 2}, DType::kBF16)))) << "spread";
  EXPECT_FALSE(by_vectors(stack_of(3, view_of({4, 16}, {16, 1}, DType::kBF16, 8)))) << "out at 8";
  EXPECT_TRUE(by_vectors(stack_of(3, view_of({4, 16}, {16, 1}, DType::kBF16, 8), DType::kF32))) << "8 bytes";
  EXPECT_FALSE(by_vectors(stack_of(3, view_of({1, 5}, {5, 1}, DType::kF32), DType::kF32)))
      << "layers at odd places";

  ReduceStackArgs biased = stack_of(3, whole);
  biased.bias = view_of({16}, {1}, DType::kBF16, 32);
  EXPECT_TRUE(by_vectors(biased));
  biased.bias = view_of({16}, {1}, DType::kBF16, 2);
  EXPECT_FALSE(by_vectors(biased)) << "bias at 2";
  biased.bias = view_of({16}, {2}, DType::kBF16);
  EXPECT_FALSE(by_vectors(biased)) << "bias spread";
  biased = stack_of(3, view_of({4, 4}, {4, 1}, DType::kBF16));
  EXPECT_TRUE(by_vectors(biased));
  biased.bias = view_of({4}, {1}, DType::kBF16);
  EXPECT_FALSE(by_vectors(biased)) << "a vector is longer than the bias";
}

TEST(CollCudaLayerSum, TakesLayersAnywhere) {
  const std::array<const void*, 3> layers = {memory.data() + 4096, memory.data(), memory.data() + 64};
  ReduceLayersArgs args{.layers = layers,
                        .dtype = DType::kF32,
                        .out = view_of({2, 8}, {8, 1}, DType::kBF16, 8192),
                        .op = ReduceOp::kAvg,
                        .bias = {}};
  const LayerSum sum = layer_sum_of(args);
  for (int r = 0; r < 3; ++r) EXPECT_EQ(layer_at(sum, r), layers[static_cast<std::size_t>(r)]);
  EXPECT_EQ(sum.divisor, 3.0F);
  EXPECT_TRUE(sum.by_vectors);
  const std::array<const void*, 2> odd = {memory.data(), memory.data() + 8};
  args.layers = odd;
  EXPECT_FALSE(layer_sum_of(args).by_vectors);
}

}  // namespace
}  // namespace tandem::coll::cuda
