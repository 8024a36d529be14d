#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <tandem/backend/backend.hpp>
#include <tandem/gemm/mm.hpp>
#include <tandem/gemm/quantize.hpp>
#include <tandem/gemm/scaled_mm.hpp>
#include <vector>

#include "support/guarded_bytes.hpp"

namespace tandem::testing {
namespace {

struct Change {
  std::function<void(gemm::MmArgs&)> make;
  std::vector<std::string> pieces;
};

class GemmArguments : public ::testing::Test {
 protected:
  [[nodiscard]] gemm::MmArgs good() {
    return {.a = memory_.view({4, 3}, DType::kF32),
            .b = memory_.view({3, 5}, DType::kF32),
            .out = out_.view({4, 5}, DType::kF32),
            .bias = {}};
  }

  GuardedBytes memory_{1024};
  GuardedBytes out_{1024};
  std::unique_ptr<Device> device_ = open_device({DeviceKind::kCpu, 0}, Config{}).value();
  std::unique_ptr<Stream> stream_ = device_->create_stream().value();
};

TEST_F(GemmArguments, NameWhatDoesNotFit) {
  const std::vector<Change> changes = {
      {[&](auto& args) {
         args.a = memory_.view({4, 2}, DType::kF32);
       },
       {"[4, 2]", "[3, 5]", "2 columns", "3 rows"}},
      {[&](auto& args) { args.a = memory_.view({12}, DType::kF32); }, {"a is", "two dimensions"}},
      {[&](auto& args) { args.a.strides[0] = -3; }, {"a is", ">= 0"}},
      {[&](auto& args) { args.a.dtype = DType::kBF16; }, {"a is bf16", "b is f32"}},
      {[&](auto& args) { args.a.dtype = args.b.dtype = DType::kI32; }, {"a is i32"}},
      {[&](auto& args) { args.out.dtype = DType::kF16; }, {"out is f16", "need f32"}},
      {[&](auto& args) {
         args.out = out_.view({5, 4}, DType::kF32);
       },
       {"out is [5, 4]", "need [4, 5]"}},
      {[&](auto& args) { args.out.strides[0] = 4; }, {"out (", "its elements overlap"}},
      {[&](auto& args) { args.out.strides[1] = 0; }, {"out (", "its elements overlap"}},
      {[&](auto& args) { args.bias = memory_.view({4}, DType::kF32); }, {"bias is", "need f32 [5]"}},
      {[&](auto& args) { args.bias = memory_.view({5}, DType::kF16); }, {"bias is f16", "need f32"}},
      {[&](auto& args) { args.b.data = nullptr; }, {"b", "no memory"}},
      {[&](auto& args) {
         args.b.device = {DeviceKind::kCuda, 0};
       },
       {"b is on cuda:0"}},
  };
  for (const Change& change : changes) {
    gemm::MmArgs args = good();
    change.make(args);
    const auto result = gemm::mm(args, *stream_);
    ASSERT_FALSE(result) << change.pieces.front();
    EXPECT_EQ(result.error().code(), ErrorCode::kInvalidArgument) << result.error().to_string();
    for (const std::string& piece : change.pieces) {
      EXPECT_NE(result.error().text().find(piece), std::string::npos)
          << piece << " is not in " << result.error().text();
    }
    ASSERT_TRUE(stream_->synchronize());
    EXPECT_TRUE(out_.is_untouched());
  }
}

TEST_F(GemmArguments, OfAScaledProductNameWhatDoesNotFit) {
  struct ScaledChange {
    std::function<void(gemm::ScaledMmArgs&)> make;
    std::string text;
  };
  const std::vector<ScaledChange> changes = {
      {[&](auto& args) {
         args.b = memory_.view({2, 5}, DType::kF8E4M3);
       },
       "a is [2, 4, 3] and b is [2, 5], need [..., k] and [k, n]"},
      {[&](auto& args) { args.a.dtype = DType::kBF16; },
       "a is bf16 and b is f8e5m2, need both f8, or both f32"},
      {[&](auto& args) { args.a.strides[1] = -3; }, "need sizes and strides >= 0"},
      {[&](auto& args) {
         args.out = out_.view({8, 5}, DType::kBF16);
       },
       "out is [8, 5], need [2, 4, 5]"},
      {[&](auto& args) { args.out.dtype = DType::kI32; }, "out is i32, need f32, bf16, f16 or f8"},
      {[&](auto& args) {
         args.out.strides = {20, 4, 1};
       },
       "is written and its elements overlap"},
      {[&](auto& args) {
         args.a_scale = memory_.view({8, 2}, DType::kF32);
       },
       "a_scale is f32 [8, 2], need f32 of one element or [2, 4, 1] or [8, 1]"},
      {[&](auto& args) { args.a_scale = memory_.view({1}, DType::kBF16); }, "a_scale is bf16 [1], need f32"},
      {[&](auto& args) { args.b_scale = memory_.view({5}, DType::kF32); },
       "b_scale is f32 [5], need f32 of one element or [1, 5] or [1, 1]"},
      {[&](auto& args) { args.b_scale.data = nullptr; },
       "b_scale f32 [1] strides [1] on cpu:0 has no memory"},
      {[&](auto& args) { args.bias = memory_.view({4}, DType::kF32); }, "need f32, bf16, f16 or f8 [5]"},
      {[&](auto& args) { args.result_scale = memory_.view({2}, DType::kF32); }, "result_scale is f32 [2]"},
      {[&](auto& args) {
         args.addend = memory_.view({2, 4, 5}, DType::kF16);
       },
       "need f32 or out's type, [2, 4, 5]"},
  };
  for (const ScaledChange& change : changes) {
    gemm::ScaledMmArgs args{.a = memory_.view({2, 4, 3}, DType::kF8E4M3),
                            .b = memory_.view({3, 5}, DType::kF8E5M2),
                            .a_scale = memory_.view({2, 4, 1}, DType::kF32),
                            .b_scale = memory_.view({1}, DType::kF32),
                            .out = out_.view({2, 4, 5}, DType::kBF16)};
    change.make(args);
    const auto result = gemm::scaled_matmul(args, *stream_);
    ASSERT_FALSE(result) << change.text;
    EXPECT_EQ(result.error().code(), ErrorCode::kInvalidArgument) << result.error().to_string();
    EXPECT_NE(result.error().text().find(change.text), std::string::npos)
        << change.text << " is not in " << result.error().text();
    ASSERT_TRUE(stream_->synchronize());
    EXPECT_TRUE(out_.is_untouched());
  }
}

TEST_F(GemmArguments, OfAQuantisationNameWhatDoesNotFit) {
  struct QuantizeChange {
    std::function<void(gemm::QuantizeRowsArgs&)> make;
    std::string text;
  };
  const std::vector<QuantizeChange> changes = {
      {[&](auto& args) { args.input.dtype = DType::kF8E4M3; },
       "quantize_rows: input is f8e4m3 [2, 130], need f32, bf16 or f16 [..., k]"},
      {[&](auto& args) { args.input = memory_.view({}, DType::kF32); }, "input is f32 [], need f32"},
      {[&](auto& args) { args.input.data = nullptr; },
       "input bf16 [2, 130] strides [130, 1] on cpu:0 has no"},
      {[&](auto& args) { args.out.dtype = DType::kBF16; },
       "out is bf16 [2, 130], need f8e4m3 or f8e5m2 [2, 130]"},
      {[&](auto& args) { args.out.sizes[1] = 129; },
       "out is f8e5m2 [2, 129], need f8e4m3 or f8e5m2 [2, 130]"},
      {[&](auto& args) { args.out.strides[0] = 129; }, "its elements overlap"},
      {[&](auto& args) { args.out.is_read_only = true; }, "out"},
      {[&](auto& args) { args.out.data = args.scale.data; }, "scale ("},
      {[&](auto& args) { args.out.data = args.input.data; }, "out ("},
      {[&](auto& args) { args.scale = args.scale.narrow(0, 0, 1); },
       "scale is f32 [1, 2], need f32 [2, 1] by rows or [2, 2] by blocks"},
      {[&](auto& args) { args.scale.dtype = DType::kF64; }, "scale is f64 [2, 2], need f32 [2, 1]"},
      {[&](auto& args) { args.scale.strides[1] = 0; }, "scale ("},
      {[&](auto& args) { args.scale.data = args.input.data; }, "scale ("},
  };
  GuardedBytes scale(64);
  for (const QuantizeChange& change : changes) {
    gemm::QuantizeRowsArgs args{.input = memory_.view({2, 130}, DType::kBF16),
                                .out = out_.view({2, 130}, DType::kF8E5M2),
                                .scale = scale.view({2, 2}, DType::kF32)};
    change.make(args);
    const auto result = gemm::quantize_rows(args, *stream_);
    ASSERT_FALSE(result) << change.text;
    EXPECT_EQ(result.error().code(), ErrorCode::kInvalidArgument) << result.error().to_string();
    EXPECT_NE(result.error().text().find(change.text), std::string::npos)
        << change.text << " is not in " << result.error().text();
    ASSERT_TRUE(stream_->synchronize());
    EXPECT_TRUE(out_.is_untouched());
    EXPECT_TRUE(scale.is_untouched());
  }
}

TEST_F(GemmArguments, OfScalesAlongKNameEverySizeThatIsTaken) {
  const gemm::ScaledMmArgs good{.a = memory_.view({2, 3, 130}, DType::kF8E4M3),
                                .b = memory_.view({130, 5}, DType::kF8E4M3),
                                .a_scale = memory_.view({2, 3, 2}, DType::kF32),
                                .b_scale = memory_.view({2, 1}, DType::kF32),
                                .out = out_.view({2, 3, 5}, DType::kBF16)};
  gemm::ScaledMmArgs bad = good;
  bad.a_scale = memory_.view({2, 3, 3}, DType::kF32);
  EXPECT_EQ(gemm::problem_of(bad).error().text(),
            "scaled_matmul: a_scale is f32 [2, 3, 3], need f32 of one element or [2, 3, 1] or [2, 3, 2] or "
            "[6, 1] or [6, 2]");
  bad = good;
  bad.b_scale = memory_.view({1, 2}, DType::kF32);
  EXPECT_EQ(gemm::problem_of(bad).error().text(),
            "scaled_matmul: b_scale is f32 [1, 2], need f32 of one element or [1, 5] or [2, 5] or [2, 1]");
}

TEST_F(GemmArguments, AccumulatingNeedsF32) {
  gemm::MmArgs args = good();
  args.a.dtype = args.b.dtype = args.out.dtype = DType::kBF16;
  args.accumulate = true;
  const auto problem = gemm::problem_of(args);
  ASSERT_FALSE(problem);
  EXPECT_EQ(problem.error().text(), "mm: out is bf16, accumulating needs f32");
}

TEST_F(GemmArguments, AnAddendIsAsOutAndNotBesideAnAccumulatingProduct) {
  gemm::MmArgs args = good();
  args.addend = memory_.view({4, 4}, DType::kF32);
  EXPECT_EQ(gemm::problem_of(args).error().text(),
            "mm: addend is f32 [4, 4] strides [4, 1] on cpu:0, need f32 [4, 5] as out");
  args.addend = memory_.view({4, 5}, DType::kBF16);
  EXPECT_EQ(gemm::problem_of(args).error().text(),
            "mm: addend is bf16 [4, 5] strides [5, 1] on cpu:0, need f32 [4, 5] as out");
  args.addend = memory_.view({4, 5}, DType::kF32);
  EXPECT_TRUE(gemm::problem_of(args).value().addend);
  args.accumulate = true;
  EXPECT_EQ(gemm::problem_of(args).error().text(), "mm: got an addend, what accumulates adds to out");
}

TEST_F(GemmArguments, APlanIsForItsProblemOnly) {
  const auto plan = gemm::plan(gemm::problem_of(good()).value(), *device_).value();
  gemm::MmArgs args = good();
  args.a = args.a.narrow(0, 0, 2);
  args.out = args.out.narrow(0, 0, 2);
  const auto result = gemm::run(plan, args, *stream_);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().text(),
            "mm: the arguments are of mm 2x5x3 f32 -> f32, the plan of mm 4x5x3 f32 -> f32");
}

TEST_F(GemmArguments, WithoutAnUsableImplementationEachSaysWhy) {
  Config config;
  config.isa = "neon";
  const auto device = open_device({DeviceKind::kCpu, 0}, config).value();
  const auto problem = gemm::problem_of(good()).value();
  const Support support = gemm::can_run(problem, *device);
  EXPECT_FALSE(support);
  for (const char* piece :
       {"cpu/tile_avx512", "cpu/tile_avx2", "cpu/tile_scalar", "TANDEM_ISA=neon excludes it"}) {
    EXPECT_NE(support.why_not.find(piece), std::string::npos) << piece << " is not in " << support.why_not;
  }
  const auto plan = gemm::plan(problem, *device);
  ASSERT_FALSE(plan);
  EXPECT_EQ(plan.error().code(), ErrorCode::kUnsupported);
  EXPECT_NE(plan.error().text().find(support.why_not), std::string::npos) << plan.error().text();
  const Support scaled = gemm::can_run(gemm::ScaledProblem{.m = 4, .n = 5, .k = 3}, *device);
  EXPECT_EQ(scaled.why_not, support.why_not);
}

}  // namespace
}  // namespace tandem::testing
