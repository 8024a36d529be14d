#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <tandem/base/shape.hpp>
#include <tandem/base/shard.hpp>
#include <tandem/base/tensor.hpp>
#include <utility>
#include <vector>

namespace tandem {
namespace {

float storage[1024];

TensorView ramp(const Dims& sizes) {
  return TensorView::contiguous(storage, sizes, DType::kF32);
}

std::int64_t offset_of(const TensorView& view) {
  return view.data_as<float>() - storage;
}

TEST(Dims, HoldUpToEightValues) {
  Dims dims;
  EXPECT_TRUE(dims.empty());
  for (int i = 0; i < kMaxDims; ++i) dims.push_back(i);
  EXPECT_EQ(dims.size(), kMaxDims);
  EXPECT_EQ(dims.back(), 7);
  EXPECT_EQ(to_string(dims), "[0, 1, 2, 3, 4, 5, 6, 7]");
  EXPECT_EQ(dims.erase(7), 7);
  EXPECT_EQ(dims.erase(0), 0);
  EXPECT_EQ(dims.erase(2), 3);
  EXPECT_EQ(dims, (Dims{1, 2, 4, 5, 6}));
  dims.insert(0, 9);
  dims.insert(6, 8);
  dims.insert(3, 3);
  EXPECT_EQ(dims, (Dims{9, 1, 2, 3, 4, 5, 6, 8}));
  EXPECT_FALSE(dims == (Dims{9, 1, 2, 3, 4, 5, 6}));
  EXPECT_FALSE(dims == (Dims{9, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(Dims(), Dims{});
  EXPECT_EQ(to_string(Dims()), "[]");
  EXPECT_EQ(to_string(Dims{-1}), "[-1]");
}

TEST(Dims, CountAndStrides) {
  EXPECT_EQ(numel({}), 1);
  EXPECT_EQ(numel({7}), 7);
  EXPECT_EQ(numel({2, 0, 3}), 0);
  EXPECT_EQ(numel({2, 3, 4}), 24);
  EXPECT_EQ(contiguous_strides({}), Dims());
  EXPECT_EQ(contiguous_strides({2, 3, 4}), (Dims{12, 4, 1}));
  EXPECT_EQ(contiguous_strides({1, 3, 1}), (Dims{3, 1, 1}));
}

TEST(TensorView, Contiguous) {
  EXPECT_TRUE(ramp({}).is_contiguous());
  EXPECT_TRUE(ramp({2, 3, 4}).is_contiguous());
  EXPECT_FALSE(ramp({2, 3}).movedim(0, 1).is_contiguous());
  EXPECT_TRUE(ramp({1, 3}).movedim(0, 1).is_contiguous()) << "a dimension of size 1 does not matter";
  EXPECT_TRUE(ramp({4, 6}).narrow(0, 1, 2).is_contiguous());
  EXPECT_FALSE(ramp({4, 6}).narrow(1, 1, 2).is_contiguous());
  EXPECT_TRUE(ramp({4, 6}).narrow(1, 1, 2).narrow(0, 3, 1).is_contiguous()) << "one row";
  EXPECT_FALSE(ramp({4, 6}).select(1, 0).is_contiguous());
  const TensorView odd{storage, {1, 3, 1}, {77, 1, 55}, DType::kF32, {}};
  EXPECT_TRUE(odd.is_contiguous());
  const TensorView empty{storage, {3, 0}, {9, 9}, DType::kF32, {}};
  EXPECT_TRUE(empty.is_contiguous());
}

TEST(TensorView, Movedim) {
  const TensorView view = ramp({2, 3, 4});
  EXPECT_EQ(view.movedim(0, 2).sizes, (Dims{3, 4, 2}));
  EXPECT_EQ(view.movedim(0, 2).strides, (Dims{4, 1, 12}));
  EXPECT_EQ(view.movedim(2, 0).sizes, (Dims{4, 2, 3}));
  EXPECT_EQ(view.movedim(1, 1).strides, view.strides);
  for (int from = 0; from < 3; ++from) {
    for (int to = 0; to < 3; ++to) {
      const TensorView back = view.movedim(from, to).movedim(to, from);
      EXPECT_EQ(back.sizes, view.sizes) << from << " to " << to;
      EXPECT_EQ(back.strides, view.strides) << from << " to " << to;
    }
  }
}

TEST(TensorView, NarrowAndSelect) {
  const TensorView view = ramp({4, 5, 6});
  const TensorView part = view.narrow(1, 2, 3);
  EXPECT_EQ(part.sizes, (Dims{4, 3, 6}));
  EXPECT_EQ(part.strides, view.strides);
  EXPECT_EQ(offset_of(part), 12);
  const TensorView all = view.narrow(0, 0, 4);
  EXPECT_EQ(all.sizes, view.sizes);
  EXPECT_EQ(offset_of(all), 0);
  const TensorView none = view.narrow(2, 6, 0);
  EXPECT_EQ(none.sizes, (Dims{4, 5, 0}));
  EXPECT_EQ(offset_of(none), 0) << "an empty part must not point behind the memory";
  const TensorView row = view.select(0, 3).select(0, 4);
  EXPECT_EQ(row.sizes, Dims{6});
  EXPECT_EQ(offset_of(row), 3 * 30 + 4 * 6);
  EXPECT_EQ(row.select(0, 5).dim(), 0);
  EXPECT_EQ(offset_of(row.select(0, 5)), 119);
  TensorView bytes = view;
  bytes.dtype = DType::kU8;
  EXPECT_EQ(bytes.narrow(0, 1, 1).data_as<std::uint8_t>() - bytes.data_as<std::uint8_t>(), 30);
}

struct FlattenCase {
  TensorView view;
  bool can;
  Dims sizes;
  Dims strides;
};

TEST(TensorView, FlattenRows) {
  const TensorView view = ramp({4, 5, 6});
  const TensorView expanded{storage, {2, 3, 4}, {0, 0, 1}, DType::kF32, {}};
  const TensorView backwards{storage + 900, {2, 3, 4}, {-12, -4, 1}, DType::kF32, {}};
  const TensorView zigzag{storage + 900, {2, 3, 4}, {12, -4, 1}, DType::kF32, {}};
  const FlattenCase cases[] = {
      {ramp({6}), true, {1, 6}, {6, 1}},
      {view, true, {20, 6}, {6, 1}},
      {ramp({2, 3, 4, 5}), true, {24, 5}, {5, 1}},
      {view.narrow(2, 1, 3), true, {20, 3}, {6, 1}},
      {view.narrow(0, 1, 2), true, {10, 6}, {6, 1}},
      {view.narrow(1, 1, 2), false, {}, {}},
      {view.narrow(1, 1, 1), true, {4, 6}, {30, 1}},
      {view.narrow(0, 1, 1).narrow(1, 1, 2), true, {2, 6}, {6, 1}},
      {view.narrow(0, 1, 1).narrow(1, 1, 1), true, {1, 6}, {6, 1}},
      {view.movedim(0, 1), false, {}, {}},
      {view.movedim(1, 2), false, {}, {}},
      {ramp({4, 6}).movedim(0, 1), true, {6, 4}, {1, 6}},
      {expanded, true, {6, 4}, {0, 1}},
      {backwards, true, {6, 4}, {-4, 1}},
      {zigzag, false, {}, {}},
  };
  for (const FlattenCase& c : cases) {
    SCOPED_TRACE(to_string(c.view));
    ASSERT_EQ(c.view.can_flatten_rows(), c.can);
    if (!c.can) continue;
    const TensorView flat = c.view.flatten_rows();
    EXPECT_EQ(flat.sizes, c.sizes);
    EXPECT_EQ(flat.strides, c.strides);
    EXPECT_EQ(flat.data, c.view.data);
  }
  EXPECT_FALSE(ramp({}).can_flatten_rows());
  EXPECT_TRUE(ramp({3, 0, 2}).can_flatten_rows());
  EXPECT_EQ(ramp({3, 0, 2}).flatten_rows().sizes, (Dims{0, 2}));
  EXPECT_EQ(ramp({3, 2, 0}).flatten_rows().sizes, (Dims{6, 0}));
}

TEST(TensorView, SizeAndText) {
  TensorView view = ramp({8, 64});
  EXPECT_EQ(view.numel(), 512);
  EXPECT_EQ(view.size_bytes(), 2048);
  EXPECT_EQ(to_string(view), "f32 [8, 64] strides [64, 1] on cpu:0");
  view.device = {DeviceKind::kCuda, 3};
  view.dtype = DType::kBF16;
  EXPECT_EQ(to_string(view.movedim(0, 1)), "bf16 [64, 8] strides [1, 64] on cuda:3");
}

TEST(Tensor, HostMemoryIsZeroedAlignedAndShared) {
  for (const Dims& sizes : {Dims{}, Dims{0}, Dims{3, 0}, Dims{1}, Dims{63}, Dims{64}, Dims{5, 7}}) {
    Tensor tensor = Tensor::host(sizes, DType::kI8);
    ASSERT_NE(tensor.view().data, nullptr);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(tensor.view().data) % 64, 0U);
    EXPECT_EQ(tensor.sizes(), sizes);
    EXPECT_TRUE(tensor.view().is_contiguous());
    for (std::int64_t i = 0; i < numel(sizes); ++i)
      ASSERT_EQ(tensor.view().data_as<std::int8_t>()[i], 0) << i;
    const std::shared_ptr<void> owner = tensor.owner();
    const TensorView view = tensor.view();
    const Tensor moved = std::move(tensor);
    EXPECT_EQ(moved.view().data, view.data);
    EXPECT_EQ(owner.use_count(), 2);
  }
}

// torch.chunk: pieces of ceil(S / W), the last one shorter, further ones missing, which here are empty.
std::vector<std::int64_t> chunk_sizes(std::int64_t total, int world) {
  std::vector<std::int64_t> sizes;
  const std::int64_t piece = total / world + (total % world != 0 ? 1 : 0);
  for (std::int64_t left = total; left > 0; left -= piece) sizes.push_back(left < piece ? left : piece);
  sizes.resize(static_cast<std::size_t>(world), 0);
  return sizes;
}

TEST(Shard, IsTheChunkRule) {
  for (std::int64_t total = 0; total <= 40; ++total) {
    for (int world = 1; world <= 9; ++world) {
      const std::vector<std::int64_t> want = chunk_sizes(total, world);
      std::int64_t offset = 0;
      for (int rank = 0; rank < world; ++rank) {
        SCOPED_TRACE(testing::Message() << "total " << total << " world " << world << " rank " << rank);
        const Shard shard = shard_of(total, world, rank);
        EXPECT_EQ(shard.size, want[static_cast<std::size_t>(rank)]);
        EXPECT_EQ(shard.offset, offset);
        EXPECT_LE(shard.size, shard_stride(total, world));
        if (shard.size > 0) {
          EXPECT_EQ(shard.offset, rank * shard_stride(total, world)) << "offsets are uniform";
        }
        offset += shard.size;
      }
      EXPECT_EQ(offset, total);
      EXPECT_EQ(shard_stride(total, world), want[0]);
    }
  }
}

}  // namespace
}  // namespace tandem
