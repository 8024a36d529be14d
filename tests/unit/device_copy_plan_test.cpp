#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "device/cpu/copy_plan.hpp"

// How much of a copy is one run. That every element arrives is checked by conformance/device_copy_test.cpp.

namespace tandem::cpu {
namespace {

struct PlanCase {
  const char* name;
  Dims sizes;
  Dims from_strides;
  Dims to_strides;
  std::int64_t run_bytes;
  int num_loops;
};

TEST(CopyPlan, MergesWhatIsContiguousOnBothSides) {
  const std::vector<PlanCase> cases = {
      {"scalar", {}, {}, {}, 4, 0},
      {"contiguous", {3, 4, 5}, {20, 5, 1}, {20, 5, 1}, 240, 0},
      {"same permutation on both sides", {3, 4, 5}, {1, 3, 12}, {1, 3, 12}, 240, 0},
      {"rows of a wider matrix", {6, 5}, {9, 1}, {5, 1}, 20, 1},
      {"leading dims in one loop", {3, 4, 5}, {36, 9, 1}, {28, 7, 1}, 20, 1},
      {"trailing dims in one run", {3, 4, 5}, {40, 5, 1}, {30, 5, 1}, 80, 1},
      {"transpose", {6, 5}, {1, 6}, {5, 1}, 4, 2},
      {"every other element", {6, 5}, {20, 2}, {15, 3}, 4, 2},
      {"every other element, rows in step", {6, 5}, {10, 2}, {15, 3}, 4, 1},
      {"strides of size-1 dims", {1, 5, 1, 3}, {999, 3, -7, 1}, {-3, 3, 500, 1}, 60, 0},
      {"backwards", {10}, {-1}, {1}, 4, 1},
      {"broadcast rows", {4, 6}, {0, 1}, {6, 1}, 24, 1},
  };
  for (const PlanCase& test : cases) {
    std::vector<float> memory(2048);
    const TensorView from{&memory[512], test.sizes, test.from_strides, DType::kF32, {}};
    const TensorView to{&memory[1024], test.sizes, test.to_strides, DType::kF32, {}};
    const CopyPlan plan(from, to);
    EXPECT_EQ(plan.run_bytes(), test.run_bytes) << test.name;
    EXPECT_EQ(plan.num_loops(), test.num_loops) << test.name;
  }
}

}  // namespace
}  // namespace tandem::cpu
