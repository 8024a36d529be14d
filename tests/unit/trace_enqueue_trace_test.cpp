#include <gtest/gtest.h>

#include <tandem/trace/enqueue_trace.hpp>

namespace tandem::trace {
namespace {

struct Case {
  Step step;
  std::string_view text;
};

TEST(EnqueueTrace, EveryStepHasItsForm) {
  using enum StepKind;
  constexpr StreamRole kCur = StreamRole::kCurrent;
  constexpr StreamRole kBk = StreamRole::kSide;
  const Case cases[] = {
      {{.kind = kBarrier, .stream = kCur, .channel = 0}, "cur:B0"},
      {{.kind = kBarrier, .stream = kBk, .channel = 12}, "bk:B12"},
      {{.kind = kJoin, .stream = kCur}, "cur>bk"},
      {{.kind = kJoin, .stream = kBk}, "bk>cur"},
      {{.kind = kPublish, .stream = kCur}, "cur:mv"},
      {{.kind = kPublish, .stream = kBk}, "bk:mv"},
      {{.kind = kConsumeOwn, .stream = kCur, .peer = 1}, "cur:use1(own)"},
      {{.kind = kConsumeOwn, .stream = kBk, .peer = 0}, "bk:use0(own)"},
      {{.kind = kGet, .stream = kBk, .peer = 2}, "bk:get2"},
      {{.kind = kGet, .stream = kBk, .peer = 2, .slot = 0}, "bk:get2.P0"},
      {{.kind = kGet, .stream = kCur, .peer = 11, .slot = 1}, "cur:get11.P1"},
      {{.kind = kConsume, .stream = kBk, .peer = 2}, "bk:use2"},
      {{.kind = kConsume, .stream = kCur, .peer = 0}, "cur:use0"},
      {{.kind = kKeepOwn, .stream = kCur, .peer = 1}, "cur:own->out1"},
      {{.kind = kProduce, .stream = kBk, .peer = 2, .slot = 0}, "bk:make2->P0"},
      {{.kind = kProduce, .stream = kCur, .peer = 1}, "cur:make1->out"},
      {{.kind = kPut, .stream = kBk, .peer = 2, .slot = 1}, "bk:put2.P1"},
      {{.kind = kAwait, .stream = kBk, .peer = 2, .slot = 1}, "bk:await2.P1"},
      {{.kind = kNap, .stream = kCur}, "cur:nap"},
      {{.kind = kNap, .stream = kBk}, "bk:nap"},
  };
  for (const Case& c : cases) EXPECT_EQ(to_string(c.step), c.text);
}

TEST(EnqueueTrace, ANewOpForgetsTheStepsOfTheOneBefore) {
  EnqueueTrace trace;
  trace.begin("all_gather_matmul [4,8,16] f32 pipelined");
  trace.add({.kind = StepKind::kPublish});
  trace.begin("matmul_reduce_scatter [4,8,16] f32 serial");
  EXPECT_EQ(trace.op(), "matmul_reduce_scatter [4,8,16] f32 serial");
  EXPECT_TRUE(trace.steps().empty());
}

TEST(EnqueueTrace, JoinsItsStepsInOrderBySingleSpaces) {
  EnqueueTrace trace;
  EXPECT_EQ(trace.to_string(), "");
  trace.add({.kind = StepKind::kPublish});
  EXPECT_EQ(trace.to_string(), "cur:mv");
  trace.add({.kind = StepKind::kBarrier, .channel = 1});
  trace.add({.kind = StepKind::kJoin});
  EXPECT_EQ(trace.to_string(), "cur:mv cur:B1 cur>bk");
  ASSERT_EQ(trace.steps().size(), 3U);
  EXPECT_EQ(trace.steps()[1].channel, 1);
  trace.clear();
  EXPECT_EQ(trace.to_string(), "");
  EXPECT_TRUE(trace.steps().empty());
}

}  // namespace
}  // namespace tandem::trace
