#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "unit/program_problems.hpp"
#include "unit/program_runs.hpp"

// What programs do with memory: where sub-buffers lie, and late shards.

namespace tandem {
namespace {

using program::StepKind;
using test::programs_of;

/// Of 7 rows of f8 over three ranks, with so many tensors of as many rows beside it.
fused::GatherProblem gather_of_7(int num_also_gathered) {
  fused::GatherProblem problem{.dtype = DType::kF8E4M3,
                               .sizes = {7, 5},
                               .world = 3,
                               .is_scaled = true,
                               .num_also_gathered = num_also_gathered,
                               .device = {},
                               .num_b = 1,
                               .sum_n = 2};
  problem.also_gather[0] = {DType::kF32, 3};
  return problem;
}

std::int64_t workspace_bytes(const test::Programs& programs) {
  for (const program::Program& one : programs)
    EXPECT_EQ(one.memory.workspace_bytes, programs.front().memory.workspace_bytes)
        << "the same on every rank";
  return programs.front().memory.workspace_bytes;
}

TEST(ProgramShapes, workspaces_are_sized_for_the_largest_shard_and_aligned) {
  // Shards of ceil(7/3) = 3 rows: 15 and 36 bytes, each rounded up to 128.
  const auto gathered = [](const fused::GatherProblem& problem) {
    return workspace_bytes(programs_of(&fused::build_pipelined_gather, problem));
  };
  EXPECT_EQ(gathered(gather_of_7(1)), 256);
  EXPECT_EQ(gathered(gather_of_7(0)), 128);
  fused::GatherProblem none = gather_of_7(0);
  none.sizes[0] = 0;
  EXPECT_EQ(gathered(none), 128) << "the pads are needed all the same";

  // Of one column, also where a rank's own part is short or empty.
  for (const std::int64_t total : {100, 68, 1}) {
    const fused::ScatterProblem problem{
        .sizes = {total, 1}, .world = 3, .device = {}, .num_products = 1, .sum_k = 1};
    EXPECT_EQ(workspace_bytes(programs_of(&fused::build_pipelined_scatter, problem)),
              2 * program::aligned_to_root(shard_stride(total, 3) * 4));
  }
}

// Bytes of odd number before a tensor of 4 bytes an element: without padding that would be misaligned.
TEST(ProgramShapes, several_shards_travel_together_each_aligned) {
  fused::GatherProblem problem = gather_of_7(0);
  problem.sizes = {6, 5};
  problem.scale_mode = ScaleMode::kRowwiseSharded;
  for (int rank = 0; rank < problem.world; ++rank) {
    test::RecorderDevice device([](const TensorView&, const TensorView&) { return "use"; });
    const auto built = fused::build_pipelined_gather(problem, rank, device);
    test::RecorderRun run(built.program, device);
    alignas(128) std::byte memory[1024] = {};
    const auto view = [&](std::ptrdiff_t at, const Dims& sizes, DType dtype) {
      return TensorView::contiguous(memory + at, sizes, dtype);
    };
    const TensorView b = view(128, {5, 16}, DType::kF8E4M3);
    const TensorView b_scale = view(256, {1}, DType::kF32);
    const TensorView out = view(512, {6, 16}, DType::kF32);
    bind({.a = view(0, {2, 5}, DType::kF8E4M3),
          .a_scale = view(64, {2, 1}, DType::kF32),
          .b = {&b, 1},
          .b_scale = {std::span(&b_scale, 1)},
          .out = {&out, 1},
          .gathered = {}},
         problem, built.roots, run.bindings());
    std::set<int> sources;
    for (const program::Step& step : built.program.steps) {
      if (step.kind != StepKind::kProduct) continue;
      const program::Product& product = built.program.products[static_cast<std::size_t>(step.product)];
      EXPECT_EQ(run.bindings().view(product.a).sizes, (Dims{2, 5}));
      EXPECT_EQ(run.bindings().view(product.a_scale).sizes, (Dims{2, 1}));
      EXPECT_TRUE(sources.insert(step.peer).second) << "source " << step.peer << " twice";
    }
    EXPECT_EQ(sources.size(), 3U);
    for (const program::Root& root : built.program.roots) {
      const bool is_published = root.space == program::Space::kWorkspace;
      EXPECT_TRUE(!is_published || root.offset_bytes % program::kRootAlignment == 0) << root.name;
    }
    const auto recorded = run.run();
    EXPECT_TRUE(recorded.result) << recorded.result.error().to_string();
  }
}

TEST(ProgramShapes, late_shards_are_short_or_empty) {
  constexpr int kWorld = 4;
  constexpr std::int64_t kTotal = 5;  // 2, 2, 1, 0
  std::vector<float> memory(256);
  const auto view = [&](std::ptrdiff_t at, const Dims& sizes) {
    return TensorView::contiguous(memory.data() + at, sizes, DType::kF32);
  };
  for (int rank = 0; rank < kWorld; ++rank) {
    const std::int64_t mine = shard_of(kTotal, kWorld, rank).size;
    std::vector<std::int64_t> rows;
    test::RecorderDevice device([&](const TensorView& a, const TensorView& out) -> Result<std::string> {
      rows.push_back(a.size(0));
      EXPECT_EQ(out.size(0), a.size(0));
      return "product";
    });
    // In the order of the products, without the empty ones.
    const auto expected = [&](std::initializer_list<int> ranks) {
      std::vector<std::int64_t> sizes;
      for (const int step : ranks) {
        const std::int64_t size = shard_of(kTotal, kWorld, (rank + step) % kWorld).size;
        if (size > 0) sizes.push_back(size);
      }
      return sizes;
    };
    const TensorView b = view(0, {3, 3});

    const fused::GatherProblem gather{
        .sizes = {kTotal, 3}, .world = kWorld, .device = {}, .num_b = 1, .sum_n = 3, .keeps_gathered = true};
    const auto gathers = fused::build_pipelined_gather(gather, rank, device);
    test::RecorderRun pieces(gathers.program, device);
    const TensorView gathered_product = view(32, {kTotal, 3});
    bind({.a = view(64, {mine, 3}),
          .b = {&b, 1},
          .out = {&gathered_product, 1},
          .gathered = view(96, {kTotal, 3})},
         gather, gathers.roots, pieces.bindings());
    auto recorded = pieces.run();
    EXPECT_TRUE(recorded.result) << recorded.result.error().to_string();
    EXPECT_EQ(rows, expected({0, 1, 2, 3}));

    rows.clear();
    const fused::ScatterProblem scatter{
        .sizes = {kTotal, 3}, .world = kWorld, .device = {}, .num_products = 1, .sum_k = 3};
    const auto scatters = fused::build_pipelined_scatter(scatter, rank, device);
    test::RecorderRun slots(scatters.program, device);
    const TensorView a = view(64, {kTotal, 3});
    bind({.a = {&a, 1}, .b = {&b, 1}, .out = view(96, {mine, 3})}, scatter, scatters.roots, slots.bindings());
    recorded = slots.run();
    EXPECT_TRUE(recorded.result) << recorded.result.error().to_string();
    EXPECT_EQ(rows, expected({1, 2, 3, 0}));
  }
}

}  // namespace
}  // namespace tandem
