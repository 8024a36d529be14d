#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "program/host/unroll.hpp"
#include "program/verify.hpp"
#include "support/host_fusions.hpp"

// Programs of all ranks, run in the mind: no two unordered steps use the same memory, barriers are met.

namespace tandem::program::host {
namespace {

using testing::stated_linear;
using testing::stated_matmul;
using testing::stated_scatter;
using testing::StatedFusion;

Result<std::vector<Program>> unrolled(const StatedFusion& stated, const LowerOptions& options,
                                      const std::vector<Dims>& inputs, int world, int num_streams) {
  const auto program = lower(stated.fusion, options);
  if (!program) return tl::unexpected(program.error());
  const auto extents = bind_extents(program->container(), inputs);
  if (!extents) return tl::unexpected(extents.error());
  std::vector<Program> ranks;
  for (int rank = 0; rank < world; ++rank) {
    auto one = unroll(program->container(), *extents, rank, num_streams);
    if (!one) return tl::unexpected(one.error());
    ranks.push_back(std::move(one->program));
  }
  return ranks;
}

void expect_sound(const StatedFusion& stated, const LowerOptions& options, const std::vector<Dims>& inputs,
                  int world, int num_streams) {
  auto ranks = unrolled(stated, options, inputs, world, num_streams);
  ASSERT_TRUE(ranks) << ranks.error().to_string();
  for (Program& program : *ranks) {  // two runs, one behind the other
    const std::vector<Step> once = program.steps;
    program.steps.insert(program.steps.end(), once.begin(), once.end());
  }
  const auto sound = verify(*ranks);
  EXPECT_TRUE(sound) << sound.error().to_string() << "\n" << ranks->front().to_string();
}

TEST(UnrolledHostProgram, HasNoRaceInAnyForm) {
  for (const int world : {1, 2, 3, 4}) {
    for (const std::int64_t s : {0, 1, 2, 8}) {
      for (const int num_streams : {1, 2, 4}) {
        const std::vector<Dims> gathered{{s, 1, 3, 8}, {8, 5}};
        for (const bool joining_loop : {false, true}) {
          LowerOptions options{.workers_wait = true, .joining_loop = joining_loop};
          expect_sound(stated_matmul(world), options, gathered, world, num_streams);
          expect_sound(stated_scatter(world), options, {{s, 1, world, 3, 8}, {1, 1, 8, 5}}, world,
                       num_streams);
          options.point_to_point = true;
          expect_sound(stated_matmul(world), options, gathered, world, num_streams);
          options.offset_by_rank = true;
          expect_sound(stated_matmul(world), options, gathered, world, num_streams);
        }
      }
    }
  }
}

TEST(UnrolledHostProgram, IsSeenToRaceWithoutItsJoins) {
  const auto ranks = unrolled(stated_matmul(2), {.workers_wait = true}, {{4, 1, 3, 8}, {8, 5}}, 2, 2);
  ASSERT_TRUE(ranks);
  std::vector<Program> broken = *ranks;
  auto& steps = broken[1].steps;
  const auto is_join_back = [](const Step& step) {
    return step.kind == StepKind::kJoin && step.other == kCurrent;
  };
  steps.erase(std::remove_if(steps.begin(), steps.end(), is_join_back), steps.end());
  ASSERT_LT(steps.size(), ranks->at(1).steps.size());
  EXPECT_FALSE(verify(broken));
}

// Two lanes of a channel are at different iterations, and a barrier does not know of which.
TEST(UnrolledHostProgram, IsSeenToGoWrongWhereLanesShareAChannel) {
  auto ranks = unrolled(stated_matmul(2), {.workers_wait = true}, {{4, 1, 3, 8}, {8, 5}}, 2, 4);
  ASSERT_TRUE(ranks);
  ASSERT_TRUE(verify(*ranks));
  for (Program& program : *ranks) {
    for (Step& step : program.steps) {
      if (step.kind == StepKind::kBarrier && step.lane != kCurrent)
        step.channel = static_cast<std::int16_t>(step.lane % 2);
    }
  }
  EXPECT_FALSE(verify(*ranks));
}

TEST(UnrolledHostProgram, MultipliesTheOwnShardFirstInARing) {
  const auto first_products = [](const LowerOptions& options) {
    const auto ranks = unrolled(stated_matmul(4), options, {{1, 1, 3, 8}, {8, 5}}, 4, 1);
    std::vector<std::int64_t> shards;
    for (const Product& product : ranks->at(1).products) shards.push_back(product.a.first / 3);
    return shards;
  };
  EXPECT_EQ(first_products({.workers_wait = true, .point_to_point = true}),
            (std::vector<std::int64_t>{1, 0, 3, 2}));
  EXPECT_EQ(first_products({.workers_wait = true, .point_to_point = true, .offset_by_rank = true}),
            (std::vector<std::int64_t>{1, 2, 3, 0}));
}

TEST(UnrolledHostProgram, FetchesFromTheNeighbourInARing) {
  const auto ranks = unrolled(stated_matmul(4), {.workers_wait = true, .point_to_point = true},
                              {{2, 1, 3, 8}, {8, 5}}, 4, 2);
  ASSERT_TRUE(ranks);
  for (const Step& step : ranks->at(0).steps) {
    EXPECT_TRUE(step.kind != StepKind::kGet || step.peer == 3) << step.peer;
  }
}

// A barrier a lane on a channel of its own: two lanes are at different iterations.
TEST(UnrolledHostProgram, HasAChannelForEveryLane) {
  const auto ranks = unrolled(stated_matmul(2), {.workers_wait = true}, {{8, 1, 3, 8}, {8, 5}}, 2, 4);
  ASSERT_TRUE(ranks);
  int num_barriers = 0;
  for (const Step& step : ranks->front().steps) {
    if (step.kind != StepKind::kBarrier) continue;
    EXPECT_EQ(step.channel, step.lane);
    ++num_barriers;
  }
  EXPECT_EQ(num_barriers, 9);
}

TEST(UnrolledHostProgram, SharesSlicesByMesh) {
  StatedFusion stated = stated_matmul(2);
  for (auto* tensor : {stated.a, stated.b, stated.out}) tensor->set_device_mesh(DeviceMesh({1, 0}));
  const auto ranks = unrolled(stated, {.workers_wait = true}, {{1, 1, 3, 8}, {8, 5}}, 2, 1);
  ASSERT_TRUE(ranks);
  for (const Step& step : ranks->front().steps) {  // rank 0 is place 1
    if (step.kind != StepKind::kGet) continue;
    EXPECT_EQ(step.peer, 1);
    EXPECT_EQ(step.to.first, 0);
  }
}

void expect_refused(const StatedFusion& stated, const std::vector<Dims>& inputs, int num_streams,
                    const std::string& text, const LowerOptions& options = {.workers_wait = true}) {
  const auto ranks = unrolled(stated, options, inputs, 2, num_streams);
  ASSERT_FALSE(ranks);
  EXPECT_NE(ranks.error().text().find(text), std::string::npos) << ranks.error().text();
}

TEST(UnrolledHostProgram, RefusesSizesThatContradictEachOther) {
  expect_refused(stated_matmul(2), {{1, 1, 3, 8}, {9, 5}}, 1, "is 8, axis 0 of T1_g_float[");
  expect_refused(stated_matmul(2), {{1, 2, 3, 8}, {8, 5}}, 1, "is sharded, need size 1 on a rank, got 2");
  expect_refused(stated_matmul(2), {{1, 1, 3, 8}}, 1, "got 1 inputs, need 2");
  expect_refused(stated_matmul(2), {{1, 3, 8}, {8, 5}}, 1, "got sizes [1, 3, 8] for T0_g_float[");
  expect_refused(stated_linear(2), {{1, 1, 3, 8}, {5, 8}, {4}}, 1, "axis 0 of T2_g_float[");
  expect_refused(stated_scatter(2), {{1, 1, 3, 3, 8}, {1, 1, 8, 5}}, 1, "need 2, a part for each device");
  expect_refused(stated_scatter(2), {{1, 1, 2, 3, 8}, {1, 2, 8, 5}}, 1, "is 2, need 1");
}

TEST(UnrolledHostProgram, RefusesStreamsThatCannotBe) {
  expect_refused(stated_matmul(2), {{1, 1, 3, 8}, {8, 5}}, 0, "got 0 streams, need 1 to 15");
  expect_refused(stated_matmul(2), {{1, 1, 3, 8}, {8, 5}}, 16, "got 16 streams, need 1 to 15");
}

TEST(UnrolledHostProgram, RefusesToReadWhatTheCallerStillWrites) {
  expect_refused(stated_matmul(2), {{1, 1, 3, 8}, {8, 5}}, 1, "lower it with workers_wait", {});
}

TEST(UnrolledHostProgram, RefusesMoreProductsThanAProgramHas) {
  expect_refused(stated_matmul(2), {{40000, 1, 1, 1}, {1, 1}}, 1, "more than 32767 products");
}

}  // namespace
}  // namespace tandem::program::host
