#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "device/cpu/copy_plan.hpp"
#include "device/cuda/strided_copy.hpp"

// What the GPU's copy kernels are given. The kernels themselves run in conformance/device_copy_test.cpp.

namespace tandem::cuda {
namespace {

struct PlanCase {
  const char* name;
  Dims sizes;
  Dims from_strides;
  Dims to_strides;
  int unit_bytes;
  int num_dims;
  int tile_dim;
  bool is_rows = false;
  std::int64_t offset_bytes = 0;  // of `from`, against 16-byte alignment
};

const std::vector<PlanCase>& plan_cases() {
  static const std::vector<PlanCase> cases = {
      {"scalar", {}, {}, {}, 4, 1, 0},
      {"contiguous", {3, 4, 5}, {20, 5, 1}, {20, 5, 1}, 16, 1, 0},
      {"misaligned", {3, 4, 5}, {20, 5, 1}, {20, 5, 1}, 4, 1, 0, false, 4},
      {"odd address", {6, 5}, {9, 1}, {5, 1}, 1, 2, 0, false, 1},
      {"rows of a wider matrix", {6, 8}, {12, 1}, {8, 1}, 16, 2, 0, true},
      {"rows with odd pitch", {6, 8}, {9, 1}, {8, 1}, 4, 2, 0, true},
      {"short rows", {6, 4}, {8, 1}, {4, 1}, 16, 1, 0},
      {"rows backwards", {6, 8}, {-12, 1}, {8, 1}, 16, 2, 0},
      {"broadcast rows", {6, 8}, {0, 1}, {8, 1}, 16, 2, 0},
      {"broadcast columns", {16, 16}, {1, 0}, {16, 1}, 4, 2, 0},
      {"transpose", {16, 12}, {1, 16}, {12, 1}, 4, 2, 1},
      {"transpose, to a pitch", {16, 12}, {1, 16}, {20, 1}, 4, 2, 1},
      {"transpose of a sliver", {16, 4}, {1, 16}, {4, 1}, 4, 2, 0},
      {"transpose of a strip", {4, 16}, {1, 4}, {16, 1}, 4, 2, 0},
      {"transpose of vectors", {16, 12, 4}, {4, 64, 1}, {48, 4, 1}, 16, 2, 1},
      {"batch of transposes", {3, 16, 12}, {192, 1, 16}, {192, 12, 1}, 4, 3, 1},
      {"outer dim nearest", {16, 3, 12}, {1, 200, 16}, {36, 12, 1}, 4, 3, 2},
      {"every other element", {6, 5}, {20, 2}, {15, 3}, 4, 2, 0},
      {"middle dim strided", {4, 3, 8}, {96, 16, 1}, {24, 8, 1}, 16, 3, 0},
  };
  return cases;
}

/// What the kernel does with the numbers.
void run(const StridedCopy& copy) {
  std::int64_t num_units = 1;
  for (int d = 0; d < copy.num_dims; ++d) num_units *= copy.sizes[d];
  for (std::int64_t unit = 0; unit < num_units; ++unit) {
    std::int64_t rest = unit;
    std::int64_t from = 0;
    std::int64_t to = 0;
    for (int d = 0; d < copy.num_dims; ++d) {
      from += rest % copy.sizes[d] * copy.from_strides[d];
      to += rest % copy.sizes[d] * copy.to_strides[d];
      rest /= copy.sizes[d];
    }
    std::memcpy(static_cast<std::byte*>(copy.to) + to * copy.unit_bytes,
                static_cast<const std::byte*>(copy.from) + from * copy.unit_bytes,
                static_cast<std::size_t>(copy.unit_bytes));
  }
}

TEST(StridedCopy, UnitsDimensionsAndTiles) {
  constexpr std::size_t kNumWords = 4096;
  alignas(16) static std::uint32_t source[kNumWords];
  alignas(16) static std::uint32_t target[kNumWords];
  alignas(16) static std::uint32_t expected[kNumWords];
  for (std::size_t i = 0; i < kNumWords; ++i) source[i] = static_cast<std::uint32_t>(i * 2654435761U);
  for (const PlanCase& test : plan_cases()) {
    auto* const first = reinterpret_cast<std::byte*>(&source[512]) + test.offset_bytes;
    const TensorView from{first, test.sizes, test.from_strides, DType::kF32, {}};
    TensorView to{&target[512], test.sizes, test.to_strides, DType::kF32, {}};
    const CopyLoops loops = CopyLoops::between(from, to);
    const StridedCopy copy = strided_copy(loops, from.data, to.data);
    EXPECT_EQ(copy.unit_bytes, test.unit_bytes) << test.name;
    EXPECT_EQ(copy.num_dims, test.num_dims) << test.name;
    EXPECT_EQ(copy.tile_dim, test.tile_dim) << test.name;
    EXPECT_EQ(is_rows_copy(loops), test.is_rows) << test.name;

    std::memset(target, 0xa5, sizeof(target));
    std::memset(expected, 0xa5, sizeof(expected));
    run(copy);
    to.data = &expected[512];
    cpu::CopyPlan(from, to).run();
    EXPECT_EQ(std::memcmp(target, expected, sizeof(target)), 0) << test.name;
  }
}

}  // namespace
}  // namespace tandem::cuda
