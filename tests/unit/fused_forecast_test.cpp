// What is foretold of a GPU that is described: the models of `auto`, and its choice.
#include <gtest/gtest.h>

#include <algorithm>
#include <tandem/fused/forecast.hpp>

#include "cost/products.hpp"
#include "cost/transfers.hpp"

namespace tandem {
namespace {

Forecaster reference() {
  auto forecaster = Forecaster::make(cost::reference_machine());
  EXPECT_TRUE(forecaster);
  return *std::move(forecaster);
}

ForecastProblem problem_of(ForecastOp op, std::int64_t m, std::int64_t n, std::int64_t k) {
  return {.op = op, .m = m, .n = n, .k = k};
}

TEST(Forecast, IsWhatTheCostModelsSay) {
  const auto forecast = reference().forecast(problem_of(ForecastOp::kAllGatherMatmul, 4096, 7168, 8192));
  ASSERT_TRUE(forecast) << forecast.error().text();
  const double product_us = cost::vendor_us(4096, 7168, 8192);
  const double gather_us =
      cost::collective_us(cost::Collective::kAllGather, std::int64_t{2048} * 8192 * 2, 2, 2 << 20);
  EXPECT_DOUBLE_EQ(forecast->product_us, product_us);
  EXPECT_DOUBLE_EQ(forecast->collective_us, gather_us);
  EXPECT_DOUBLE_EQ(*forecast->us_of(Algorithm::kSerial), product_us + gather_us);
}

TEST(Forecast, TakesTheFastest) {
  for (const ForecastOp op :
       {ForecastOp::kAllGatherMatmul, ForecastOp::kMatmulReduceScatter, ForecastOp::kMatmulAllReduce}) {
    for (const std::int64_t m : {64, 512, 4096}) {
      const auto forecast = reference().forecast(problem_of(op, m, 4096, 4096));
      ASSERT_TRUE(forecast) << forecast.error().text();
      EXPECT_EQ(forecast->candidates.size(), 3U);
      const double* const taken = forecast->us_of(forecast->algorithm);
      ASSERT_NE(taken, nullptr);
      for (const Candidate& one : forecast->candidates) {
        if (one.predicted_us) {
          EXPECT_LE(*taken, *one.predicted_us) << to_string(one.algorithm);
        }
        EXPECT_NE(one.why_not.empty(), !one.predicted_us) << to_string(one.algorithm);
      }
    }
  }
}

TEST(Forecast, NativeKernelsRefuseWhatTheyRefuseOnAGpu) {
  const auto forecast = reference().forecast(problem_of(ForecastOp::kAllGatherMatmul, 4096, 7169, 8192));
  ASSERT_TRUE(forecast);
  EXPECT_EQ(forecast->us_of(Algorithm::kNative), nullptr);
  const auto native = std::find_if(forecast->candidates.begin(), forecast->candidates.end(),
                                   [](const Candidate& one) { return one.algorithm == Algorithm::kNative; });
  EXPECT_NE(native->why_not.find("need n in multiples of 8"), std::string::npos) << native->why_not;
}

TEST(Forecast, FollowsTheRates) {
  const ForecastProblem problem = problem_of(ForecastOp::kAllGatherMatmul, 4096, 3584, 8192);
  cost::Machine slow = cost::reference_machine();
  slow.find("link_bytes_per_us")->value /= 2;
  const auto here = reference().forecast(problem);
  const auto there = reference().with_rates(slow)->forecast(problem);
  ASSERT_TRUE(here && there);
  EXPECT_GT(there->collective_us, 1.5 * here->collective_us);
  EXPECT_DOUBLE_EQ(there->product_us, here->product_us);
}

TEST(Forecast, WhatNoModelCoversIsRefused) {
  ForecastProblem problem = problem_of(ForecastOp::kAllGatherMatmul, 0, 3584, 8192);
  EXPECT_EQ(reference().forecast(problem).error().code(), ErrorCode::kInvalidArgument);
  problem.m = 4096;
  problem.world = 1;
  EXPECT_EQ(reference().forecast(problem).error().code(), ErrorCode::kInvalidArgument);
  problem.world = 2;
  problem.dtype = DType::kF8E4M3;
  EXPECT_EQ(reference().forecast(problem).error().code(), ErrorCode::kInvalidArgument) << "no scales";
  problem.scales = ScaleMode::kBlockwiseSharded;
  EXPECT_EQ(reference().forecast(problem).error().code(), ErrorCode::kUnsupported);
  cost::Machine lacks = cost::reference_machine();
  lacks.rates.clear();
  EXPECT_EQ(Forecaster::make(lacks).error().code(), ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace tandem
