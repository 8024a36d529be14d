#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <tandem/backend/backend.hpp>
#include <tandem/gemm/async_input_mm.hpp>
#include <vector>

#include "support/guarded_bytes.hpp"
#include "support/symm_rank.hpp"

namespace tandem::testing {
namespace {

struct Change {
  std::function<void(gemm::AsyncInputMmArgs&)> make;
  std::string text;
};

class GemmAsyncInputArguments : public ::testing::Test {
 protected:
  void expect_refused(const std::vector<Change>& changes) {
    for (const Change& change : changes) {
      gemm::AsyncInputMmArgs args{.a = memory_.view({8, 3}, DType::kBF16),
                                  .b = memory_.view({3, 5}, DType::kBF16),
                                  .out = out_.view({8, 5}, DType::kBF16),
                                  .a_chunk_signals = memory_.view({4}, DType::kU32)};
      change.make(args);
      const auto result = gemm::async_input_mm(args, *stream_);
      ASSERT_FALSE(result) << change.text;
      EXPECT_EQ(result.error().code(), ErrorCode::kInvalidArgument) << result.error().to_string();
      EXPECT_NE(result.error().text().find(change.text), std::string::npos)
          << change.text << " is not in " << result.error().text();
      ASSERT_TRUE(stream_->synchronize());
      EXPECT_TRUE(out_.is_untouched());
    }
  }

  GuardedBytes memory_{1024};
  GuardedBytes out_{1024};
  std::unique_ptr<Device> device_ = open_device({DeviceKind::kCpu, 0}, Config{}).value();
  std::unique_ptr<Stream> stream_ = device_->create_stream().value();
};

TEST_F(GemmAsyncInputArguments, OperandsThatDoNotFit) {
  expect_refused({
      {[&](auto& args) { args.a = memory_.view({24}, DType::kBF16); },
       "a is bf16 [24] strides [1] on cpu:0, need two"},
      {[&](auto& args) {
         args.b = memory_.view({4, 5}, DType::kBF16);
       },
       "3 columns of a, 4 rows of b, need equal"},
      {[&](auto& args) { args.b.dtype = DType::kF16; }, "a is bf16 and b is f16"},
      {[&](auto& args) { args.a.dtype = args.b.dtype = DType::kF8E4M3; }, "a is f8e4m3"},
      {[&](auto& args) { args.out.dtype = DType::kF16; }, "out is f16, need bf16 (as a and b) or f32"},
      {[&](auto& args) {
         args.out = out_.view({5, 8}, DType::kBF16);
       },
       "out is [5, 8], need [8, 5]"},
      {[&](auto& args) {
         args.a.strides = {4, 1};
       },
       "need both contiguous"},
      {[&](auto& args) {
         args.out.strides = {1, 8};
       },
       "need both contiguous"},
      {[&](auto& args) {
         args.b.strides = {6, 1};
       },
       "b is bf16 [3, 5] strides [6, 1] on cpu:0, need it row-major"},
      {[&](auto& args) {
         args.b.strides = {1, 4};
       },
       "column-major without holes"},
      {[&](auto& args) { args.a.strides = {1}; }, "a has 2 sizes but 1 strides"},
      {[&](auto& args) {
         args.b.device = {DeviceKind::kCuda, 1};
       },
       "b is on cuda:1"},
  });
}

TEST_F(GemmAsyncInputArguments, SignalsThatDoNotFit) {
  expect_refused({
      {[&](auto& args) { args.a_chunk_signals.dtype = DType::kI32; }, "a_chunk_signals are i32 [4]"},
      {[&](auto& args) { args.a_chunk_signals = memory_.view({0}, DType::kU32); }, "0 signals, need 1 to"},
      {[&](auto& args) {
         args.a_chunk_signals = memory_.view({2, 2}, DType::kU32);
       },
       "need u32, 1-D and contiguous"},
      {[&](auto& args) { args.a_chunk_signals.strides = {2}; }, "strides [2] on cpu:0, need u32, 1-D"},
      {[&](auto& args) { args.a_chunk_signals.data = memory_.data() + 2; }, "a_chunk_signals start at 0x"},
      {[&](auto& args) { args.a_chunk_signals.data = memory_.data() + 3; }, "need a multiple of 4"},
      {[&](auto& args) { args.a_chunk_pivot = 4; },
       "a_chunk_pivot is 4, need 0 to 3, as there are 4 signals"},
      {[&](auto& args) { args.a_chunk_pivot = -1; }, "a_chunk_pivot is -1, need 0 to 3"},
      {[&](auto& args) { args.chunks_together = 0; }, "chunks_together is 0, need 1 or more"},
      {[&](auto& args) {
         args.a_chunk_pivot = 1;
         args.chunks_together = 2;
       },
       "chunks_together is 2, need 1 or more, and a_chunk_pivot, 1, a multiple of it"},
      {[&](auto& args) { args.a_chunk_signals.data = nullptr; },
       "a_chunk_signals u32 [4] strides [1] on cpu:0 has no"},
  });
}

// Chunks of 2 rows.
TEST_F(GemmAsyncInputArguments, CompleteChunksThatDoNotFit) {
  const auto with = [&](std::int64_t rows, std::int64_t first, std::int64_t count) {
    return [=, this](gemm::AsyncInputMmArgs& args) {
      args.complete = {memory_.view({rows, 3}, DType::kBF16), first, count};
    };
  };
  expect_refused({
      {with(2, -1, 1), "complete has 1 chunks from chunk -1, need 1 or more inside 0 to 3"},
      {with(2, 0, 0), "complete has 0 chunks from chunk 0, need 1 or more"},
      {with(4, 3, 2), "complete has 2 chunks from chunk 3, need 1 or more inside 0 to 3"},
      {with(2, 4, 1), "from chunk 4"},
      {with(2, 0, std::int64_t{1} << 62), "inside 0 to 3"},
      {with(3, 1, 2), "need bf16 [4, 3], contiguous, for chunks 1 to 2 of 4"},
      {[&](auto& args) {
         args.complete = {memory_.view({4, 3}, DType::kF16), 1, 2};
       },
       "complete.rows is f16 [4, 3] strides [3, 1] on cpu:0, need bf16 [4, 3]"},
      {[&](auto& args) {
         args.complete = {memory_.view({4, 4}, DType::kBF16).narrow(1, 0, 3), 1, 2};
       },
       "strides [4, 1] on cpu:0, need bf16 [4, 3], contiguous"},
      {[&](auto& args) {
         args.complete = {TensorView::contiguous(nullptr, {4, 3}, DType::kBF16), 1, 2};
       },
       "complete.rows bf16 [4, 3] strides [3, 1] on cpu:0 has no"},
  });
}

TEST_F(GemmAsyncInputArguments, SendersThatDoNotFit) {
  expect_ok(run_symm_ranks(1, {}, [&](SymmRank& rank) -> Result<void> {
    const Tensor block = rank.empty({4});
    const auto handle = rank.meet(block);
    expect_refused({
        {[](auto& args) { args.senders = gemm::ChunkSenders{}; }, "senders.handle is null"},
        {[&](auto& args) {
           args.senders = {handle.get(), 4};
         },
         "senders.handle is of cpu:0, need one of the stream's device"},
    });
    stream_ = rank.device->create_stream().value();
    expect_refused({
        {[&](auto& args) {
           args.senders = {handle.get(), 3};
         },
         "senders.chunks_per_rank is 3, need 1 or more, and 4 chunks from 1 ranks at most"},
        {[&](auto& args) {
           args.senders = {handle.get(), 0};
         },
         "senders.chunks_per_rank is 0"},
        {[&](auto& args) {
           args.senders = {handle.get(), -1};
         },
         "senders.chunks_per_rank is -1"},
    });
    stream_.reset();
    return {};
  }));
}

TEST_F(GemmAsyncInputArguments, ChunksThatCannotBeCounted) {
  for (const std::int64_t chunks : {std::int64_t{0}, std::int64_t{-4}, std::int64_t{1} << 40}) {
    const Support support =
        gemm::can_run(gemm::AsyncInputProblem{.m = 8, .n = 5, .k = 3, .chunks = chunks}, *device_);
    EXPECT_FALSE(support);
    EXPECT_NE(support.why_not.find(std::to_string(chunks) + " chunks"), std::string::npos) << support.why_not;
  }
  EXPECT_FALSE(
      gemm::can_run(gemm::AsyncInputProblem{.m = 8, .n = 5, .k = 3, .chunks_together = 0}, *device_));
}

TEST_F(GemmAsyncInputArguments, ADeviceThatCannotSaysWhy) {
  Config config;
  config.isa = "none of these";
  const auto device = open_device({DeviceKind::kCpu, 0}, config).value();
  const Support support =
      gemm::can_run(gemm::AsyncInputProblem{.m = 8, .n = 5, .k = 3, .chunks = 4}, *device);
  EXPECT_FALSE(support.ok);
  EXPECT_NE(support.why_not.find("cpu/tile_scalar: TANDEM_ISA=none of these excludes it"), std::string::npos)
      << support.why_not;
}

}  // namespace
}  // namespace tandem::testing
