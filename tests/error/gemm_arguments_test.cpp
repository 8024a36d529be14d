#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <tandem/backend/backend.hpp>
#include <tandem/gemm/mm.hpp>
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
      {[&](auto& args) { args.out.strides[0] = 4; }, {"out is", "overlap"}},
      {[&](auto& args) { args.out.strides[1] = 0; }, {"out is", "overlap"}},
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

TEST_F(GemmArguments, AccumulatingNeedsF32) {
  gemm::MmArgs args = good();
  args.a.dtype = args.b.dtype = args.out.dtype = DType::kBF16;
  args.accumulate = true;
  const auto problem = gemm::problem_of(args);
  ASSERT_FALSE(problem);
  EXPECT_EQ(problem.error().text(), "mm: out is bf16, accumulating needs f32");
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
}

}  // namespace
}  // namespace tandem::testing
