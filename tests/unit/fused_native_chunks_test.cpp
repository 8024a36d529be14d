#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <tandem/backend/backend.hpp>
#include <tandem/gemm/chunk_order.hpp>

#include "fused/gather/chunks.hpp"

// How a native gather is cut, and what it refuses: both are what all ranks have to find alike.

namespace tandem::fused {
namespace {

GatherProblem problem_of(const Dims& sizes, int dim, int world) {
  GatherProblem problem;
  problem.dtype = DType::kBF16;
  problem.sizes = sizes;
  problem.dim = dim;
  problem.world = world;
  return problem;
}

/// Chunks of equal rows cover all rows, those of each rank just its shard.
void check_chunks(const GatherProblem& problem) {
  SCOPED_TRACE(to_string(problem));
  const NativeChunks chunks = native_chunks(problem);
  const std::int64_t shard = shard_stride(problem.total(), problem.world) * problem.unit_rows();
  EXPECT_EQ(chunks.rows * chunks.per_rank, shard);
  EXPECT_LT((chunks.count - 1) * chunks.rows, problem.rows());
  EXPECT_GE(chunks.count * chunks.rows, problem.rows());
  const gemm::ChunkOrder order(problem.rows(), static_cast<int>(chunks.count), 0);
  EXPECT_EQ(order.stride() == chunks.rows, chunks.by_shard_rule);
}

TEST(FusedNativeChunks, of_rows_are_those_of_the_shard_rule_whatever_their_number) {
  for (const int world : {1, 2, 3, 4, 8}) {
    for (std::int64_t rows = world; rows < 200; ++rows) {
      const GatherProblem problem = problem_of({rows, 8}, 0, world);
      if (problem.part_of(world - 1).size == 0) continue;
      check_chunks(problem);
      EXPECT_TRUE(native_chunks(problem).by_shard_rule) << rows << " on " << world;
      EXPECT_EQ(native_chunks(problem).per_rank, 1);
    }
    for (int missing = 0; missing < world; ++missing) {
      const GatherProblem pieces = problem_of({2048 * world - missing, 8}, 0, world);
      check_chunks(pieces);
      EXPECT_TRUE(native_chunks(pieces).by_shard_rule);
      EXPECT_EQ(native_chunks(pieces).per_rank, 4);
    }
  }
}

TEST(FusedNativeChunks, of_a_gpu_are_whole_shards_where_the_product_takes_longer_than_the_copy) {
  GatherProblem problem = problem_of({4 * 2048, 8192}, 0, 4);
  const auto pieces = [&](DeviceKind kind, std::int64_t n) {
    problem.device.kind = kind;
    problem.plan_n = n;
    check_chunks(problem);
    return native_chunks(problem).per_rank;
  };
  EXPECT_EQ(pieces(DeviceKind::kCuda, 3584), 1);
  EXPECT_EQ(pieces(DeviceKind::kCuda, 2048), 4);
  EXPECT_EQ(pieces(DeviceKind::kCuda, 0), 4) << "nobody tells how wide products are";
  EXPECT_EQ(pieces(DeviceKind::kCpu, 3584), 4);
}

TEST(FusedNativeChunks, of_thick_units_say_when_they_are_not) {
  int num_other = 0;
  for (const int world : {1, 2, 3, 4, 8}) {
    for (const std::int64_t thickness : {2, 5, 64, 512}) {
      for (std::int64_t units = world; units < 40; ++units) {
        const GatherProblem problem = problem_of({thickness, units, 8}, 1, world);
        if (problem.part_of(world - 1).size == 0) continue;
        check_chunks(problem);
        num_other += native_chunks(problem).by_shard_rule ? 0 : 1;
        EXPECT_TRUE(native_chunks(problem).by_shard_rule || units % world != 0) << units;
      }
    }
  }
  EXPECT_GT(num_other, 0);
}

// Of 8192 columns of a, on H200s.
TEST(FusedNativeChunks, pieces_keep_pace_where_waves_leave_time_for_them) {
  const auto keep_pace = [](std::int64_t rows, std::int64_t n, int world) {
    GatherProblem problem = problem_of({rows, 8192}, 0, world);
    problem.plan_n = n;
    return pieces_keep_pace(problem);
  };
  EXPECT_TRUE(keep_pace(512, 3584, 4));
  EXPECT_TRUE(keep_pace(1024, 3584, 4));
  EXPECT_TRUE(keep_pace(2048, 3584, 4)) << "the own shard and the next one, then two others";
  EXPECT_TRUE(keep_pace(1024, 7168, 4));
  EXPECT_TRUE(keep_pace(3072, 3584, 4)) << "a third of the next shard";
  EXPECT_FALSE(keep_pace(4096, 3584, 4)) << "the first wave is the own shard";
  EXPECT_FALSE(keep_pace(2048, 1792, 4)) << "one wave, too short for three shards";
  EXPECT_TRUE(keep_pace(512, 7168, 2));
  EXPECT_TRUE(keep_pace(1024, 4480, 2)) << "nearly all of both shards";
  EXPECT_FALSE(keep_pace(1024, 7168, 2));
  EXPECT_FALSE(keep_pace(1536, 3584, 2)) << "two waves, the second one half empty";
  EXPECT_FALSE(keep_pace(2048, 2688, 4)) << "the same";
  EXPECT_FALSE(keep_pace(2048, 3584, 8)) << "the last shard would come long behind the first wave";
}

TEST(FusedNativeChunks, ranks_on_cpus_send_no_pieces) {
  Config config;
  config.native_pieces = 3;
  const auto device = open_device({DeviceKind::kCpu, 0}, config).value();
  EXPECT_EQ(piece_peers(problem_of({1024, 8192}, 0, 4), *device), 0);
}

TEST(FusedNativeChunks, refusals_say_why) {
  const auto device = open_device({DeviceKind::kCpu, 0}, Config{}).value();
  const auto why_not = [&](const GatherProblem& problem) { return can_run_native(problem, *device).why_not; };
  EXPECT_EQ(why_not(problem_of({8, 8}, 0, 4)), "");
  EXPECT_EQ(why_not(problem_of({8, 0}, 0, 4)), "") << "no columns of a are none of it";
  EXPECT_EQ(why_not(problem_of({8, 8}, 1, 4)), "it gathers rows, and here columns are gathered");
  EXPECT_EQ(why_not(problem_of({10, 8}, 0, 4)), "");
  EXPECT_EQ(why_not(problem_of({5, 8}, 0, 4)),
            "every rank has to have rows, and of [5, 8] at dim 0 rank 3 has none");
  EXPECT_NE(why_not(problem_of({0, 8, 8}, 1, 4)), "");
  EXPECT_NE(why_not(problem_of({8, 0, 8}, 0, 4)), "");
  GatherProblem captured = problem_of({8, 8}, 0, 4);
  captured.is_capturing = true;
  EXPECT_EQ(why_not(captured), "");
  Config config;
  config.isa = "none of these";
  const auto other = open_device({DeviceKind::kCpu, 0}, config).value();
  EXPECT_NE(can_run_native(problem_of({8, 8}, 0, 4), *other).why_not.find("cpu/tile_scalar"),
            std::string::npos);
}

}  // namespace
}  // namespace tandem::fused
