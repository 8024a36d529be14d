#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "unit/pipeline_runs.hpp"

// What the schedules do with memory: where sub-buffers lie, late shards, and what they refuse.

namespace tandem {
namespace {

TensorView view_of(std::vector<float>& memory, const Dims& sizes, DType dtype = DType::kF32) {
  return TensorView::contiguous(memory.data(), sizes, dtype);
}

TEST(PipelineShapes, workspaces_are_sized_for_the_largest_shard_and_aligned) {
  std::vector<float> memory(64);
  const TensorView floats = view_of(memory, {7, 3});
  const TensorView bytes = view_of(memory, {7, 5}, DType::kU8);
  // Shards of ceil(7/3) = 3 rows: 36 and 15 bytes, each rounded up to 128.
  const std::vector<TensorView> both = {bytes, floats};
  EXPECT_EQ(pipeline::gather_workspace_bytes(both, 3), 256);
  EXPECT_EQ(pipeline::gather_workspace_bytes(std::span(both).first(1), 3), 128);
  const TensorView none = view_of(memory, {0, 3});
  EXPECT_EQ(pipeline::gather_workspace_bytes(std::span(&none, 1), 3), 128)
      << "the pads are needed all the same";

  // The same on every rank, also on one whose own part is empty.
  for (const std::int64_t mine : {40, 20, 0}) {
    EXPECT_EQ(pipeline::scatter_workspace_bytes(view_of(memory, {3, mine, 1}), 100),
              2 * pipeline::aligned(34 * 4));
  }
}

TEST(PipelineShapes, several_shards_travel_together_each_aligned) {
  constexpr int kWorld = 3;
  constexpr int kRank = 1;
  test::CallLog log;
  test::RecorderDevice device;
  test::RecorderStream current(device, "cur", log);
  test::RecorderStream side(device, "bk", log);
  std::vector<float> memory(64);
  // A 1-byte tensor of odd length before a 4-byte one: without padding the second would be misaligned.
  const std::vector<TensorView> gathered = {view_of(memory, {6, 5}, DType::kU8), view_of(memory, {6, 1})};
  const std::vector<TensorView> shards = {view_of(memory, {2, 5}, DType::kU8), view_of(memory, {2, 1})};
  test::RecorderHandle workspace(kRank, kWorld, pipeline::gather_workspace_bytes(gathered, kWorld), 0,
                                 device);
  std::set<int> sources;
  const auto consume = [&](std::span<const TensorView> chunks, int source, Stream&) -> Result<void> {
    EXPECT_EQ(chunks.size(), 2U);
    EXPECT_EQ(chunks[0].sizes, (Dims{2, 5}));
    EXPECT_EQ(chunks[1].sizes, (Dims{2, 1}));
    EXPECT_TRUE(sources.insert(source).second) << "source " << source << " twice";
    return {};
  };
  const auto result = pipeline::gather_and_consume(
      {.shards = shards, .gathered = gathered, .keep_own = false, .in_place = {}, .consumer = consume},
      workspace, {current, side});
  ASSERT_TRUE(result) << result.error().to_string();
  EXPECT_EQ(sources.size(), 3U);
}

TEST(PipelineShapes, late_shards_are_short_or_empty) {
  constexpr int kWorld = 4;
  constexpr std::int64_t kTotal = 5;  // 2, 2, 1, 0
  for (int rank = 0; rank < kWorld; ++rank) {
    test::CallLog log;
    test::RecorderDevice device;
    test::RecorderStream current(device, "cur", log);
    test::RecorderStream side(device, "bk", log);
    std::vector<float> memory(256);
    const std::int64_t mine = shard_of(kTotal, kWorld, rank).size;

    const TensorView gathered = view_of(memory, {kTotal, 3});
    const TensorView shard = view_of(memory, {mine, 3});
    test::RecorderHandle pieces(rank, kWorld, 128, 0, device);
    const auto consume = [&](std::span<const TensorView> chunks, int source, Stream&) -> Result<void> {
      EXPECT_EQ(chunks[0].sizes, (Dims{shard_of(kTotal, kWorld, source).size, 3})) << source;
      return {};
    };
    auto result = pipeline::gather_and_consume({.shards = std::span(&shard, 1),
                                                .gathered = std::span(&gathered, 1),
                                                .keep_own = true,
                                                .in_place = {},
                                                .consumer = consume},
                                               pieces, {current, side});
    EXPECT_TRUE(result) << result.error().to_string();

    const TensorView stack = view_of(memory, {kWorld, mine, 3});
    test::RecorderHandle slots(rank, kWorld, 256, 2, device);
    const auto produce = [&](int destination, const TensorView& to, Stream&) -> Result<void> {
      EXPECT_EQ(to.sizes, (Dims{shard_of(kTotal, kWorld, destination).size, 3})) << destination;
      return {};
    };
    result = pipeline::produce_and_all_to_all({.stack = stack, .total = kTotal, .producer = produce}, slots,
                                              {current, side});
    EXPECT_TRUE(result) << result.error().to_string();
  }
}

TEST(PipelineShapes, what_does_not_fit_is_refused_before_anything_is_enqueued) {
  test::CallLog log;
  test::RecorderDevice device;
  test::RecorderStream current(device, "cur", log);
  test::RecorderStream side(device, "bk", log);
  std::vector<float> memory(256);
  test::RecorderHandle workspace(0, 2, 256, 0, device);
  const auto consume = [](std::span<const TensorView>, int, Stream&) -> Result<void> { return {}; };
  const auto produce = [](int, const TensorView&, Stream&) -> Result<void> { return {}; };
  const auto gather = [&](const TensorView& shard, const TensorView& all) {
    return pipeline::gather_and_consume({.shards = std::span(&shard, 1),
                                         .gathered = std::span(&all, 1),
                                         .keep_own = true,
                                         .in_place = {},
                                         .consumer = consume},
                                        workspace, {current, side});
  };
  TensorView holes = view_of(memory, {2, 3});
  holes.strides = {4, 1};
  EXPECT_EQ(gather(holes, view_of(memory, {4, 3})).error().code(), ErrorCode::kInternal);
  EXPECT_EQ(gather(view_of(memory, {1, 3}), view_of(memory, {4, 3})).error().code(), ErrorCode::kInternal);
  EXPECT_EQ(gather(view_of(memory, {2, 2}), view_of(memory, {4, 3})).error().code(), ErrorCode::kInternal);
  EXPECT_EQ(gather(view_of(memory, {40, 3}), view_of(memory, {80, 3})).error().code(), ErrorCode::kInternal)
      << "480 bytes in a workspace of 256";
  const auto scatter = [&](const TensorView& stack, std::int64_t total) {
    return pipeline::produce_and_all_to_all({.stack = stack, .total = total, .producer = produce}, workspace,
                                            {current, side});
  };
  EXPECT_EQ(scatter(view_of(memory, {3, 2, 3}), 4).error().code(), ErrorCode::kInternal);
  EXPECT_EQ(scatter(view_of(memory, {2, 1, 3}), 4).error().code(), ErrorCode::kInternal);
  EXPECT_EQ(scatter(view_of(memory, {2, 16, 3}), 32).error().code(), ErrorCode::kInternal);
  EXPECT_TRUE(log.empty()) << test::joined(log);
}

}  // namespace
}  // namespace tandem
