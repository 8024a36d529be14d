// async_input_mm by the native kernels of a GPU: any chunks, ragged ones, some complete from the start and
// elsewhere, the others late and in any order. Bit by bit what the same kernels make of operands that are all
// there, which in turn is compared with float64.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <string_view>

#include "conformance/gemm_chunked_product.hpp"

namespace tandem {
namespace {

using Case = test::ChunkedProduct;

constexpr std::int64_t kN = 264;
constexpr std::int64_t kK = 136;

class GemmNative : public test::ChunkedProductTest {
 protected:
  void SetUp() override {
    if (testing::num_test_gpus() == 0) GTEST_SKIP() << "needs a GPU";
    open(DeviceKind::kCuda, Config{});
  }
  void check(Case c) {
    c.is_shuffled = true;
    c.out = c.in;
    ChunkedProductTest::check(c);
  }
  /// The same kernels over all of a in one complete chunk.
  Result<void> multiply_whole(const test::ChunkedOperands& x) override {
    return gemm::async_input_mm({.a = x.source.view(),
                                 .b = x.b.view(),
                                 .out = x.reference.view(),
                                 .a_chunk_signals = x.signals.view().narrow(0, 0, 1),
                                 .complete = gemm::CompleteChunks{x.source.view(), 0, 1}},
                                *stream_);
  }
};

TEST_F(GemmNative, EveryNumberOfChunksAndPivot) {
  for (const int chunks : {1, 2, 3, 4, 8}) {
    for (const std::int64_t m : {1, 7, 128, 130, 300, 520, 1024}) {
      for (int pivot = 0; pivot < chunks; ++pivot)
        check({.m = m, .n = kN, .k = kK, .chunks = chunks, .pivot = pivot, .b_is_column_major = true});
    }
  }
}

TEST_F(GemmNative, EveryTypeAndMemoryOrder) {
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    for (const bool is_column_major : {false, true}) {
      for (const std::int64_t m : {256, 400, 1024}) {
        check({.m = m, .n = kN, .k = kK, .pivot = 2, .in = dtype, .b_is_column_major = is_column_major});
        check({.m = m, .n = 8, .k = 8, .chunks = 3, .in = dtype, .b_is_column_major = is_column_major});
      }
    }
  }
}

TEST_F(GemmNative, CompleteChunksLieElsewhere) {
  for (const std::int64_t m : {40, 512, 600, 1500, 2048}) {
    for (const int chunks : {2, 3, 4, 8}) {
      for (int first = 0; first < chunks; ++first) {
        const int most = std::min(2, chunks - first);
        check({.m = m,
               .n = kN,
               .k = kK,
               .chunks = chunks,
               .pivot = first,
               .complete_first = first,
               .complete_count = most,
               .b_is_column_major = true});
      }
    }
  }
}

TEST_F(GemmNative, RandomProblems) {
  for (int i = 0; i < 150; ++i) {
    Case c;
    c.m = 1 + static_cast<std::int64_t>(random_() % 1800);
    c.n = 8 * (1 + static_cast<std::int64_t>(random_() % 100));
    c.k = 8 * (1 + static_cast<std::int64_t>(random_() % 60));
    c.chunks = 1 + static_cast<int>(random_() % 9);
    c.pivot = static_cast<int>(random_() % static_cast<unsigned>(c.chunks));
    c.together = 1 + static_cast<int>(random_() % 4);
    c.pivot -= c.pivot % c.together;
    if (random_() % 2 == 0) c.m = 128 * c.chunks * (1 + static_cast<std::int64_t>(random_() % 3));
    c.complete_first = static_cast<int>(random_() % static_cast<unsigned>(c.chunks));
    c.complete_count = static_cast<int>(random_() % static_cast<unsigned>(c.chunks - c.complete_first + 1));
    c.in = random_() % 2 == 0 ? DType::kBF16 : DType::kF16;
    c.b_is_column_major = random_() % 2 == 0;
    c.expected = static_cast<std::uint32_t>(random_());
    c.in_order = random_() % 2 == 0;
    check(c);
  }
}

// Tiles of several chunks in one sweep, each behind its own signal.
TEST_F(GemmNative, ChunksTakenTogether) {
  for (const int chunks : {4, 6, 8, 9}) {
    for (const int together : {2, 3, 4}) {
      for (int pivot = 0; pivot < chunks; pivot += together) {
        for (const std::int64_t missing : {0, 1, 100}) {
          check({.m = 256 * chunks - missing,
                 .n = kN,
                 .k = kK,
                 .chunks = chunks,
                 .pivot = pivot,
                 .together = together,
                 .complete_first = pivot,
                 .complete_count = std::min(together, chunks - pivot),
                 .b_is_column_major = true});
        }
      }
    }
  }
}

// Chunks of an odd number of rows of tiles, the last of which may be short: pairs reach into the next chunk.
TEST_F(GemmNative, PairsOfTwoChunks) {
  for (const std::string kernel : {"bf16 t 128x256 2x1", "bf16 t 128x112 2x1", "bf16 n 128x192 2x1"}) {
    SCOPED_TRACE(kernel);
    Config config;
    config.native_kernel = kernel;
    open(DeviceKind::kCuda, config);
    for (const int chunks : {2, 4, 6, 8}) {
      for (const std::int64_t rows : {120, 128, 300, 330, 383, 384, 600}) {
        // The plain product that this is compared with needs pairs as well.
        if ((rows * chunks + 127) / 128 % 2 != 0) continue;
        for (int pivot = 0; pivot < chunks; ++pivot) {
          check({.m = rows * chunks,
                 .n = 520,
                 .k = kK,
                 .chunks = chunks,
                 .pivot = pivot,
                 .complete_first = pivot,
                 .complete_count = 1,
                 .b_is_column_major = kernel.find(" t ") != std::string::npos,
                 .in_order = false});
        }
      }
    }
  }
}

TEST_F(GemmNative, WhatItDoesNotTakeIsRefusedWithTheReason) {
  const auto refusal = [&](const gemm::AsyncInputProblem& problem) {
    return gemm::can_run(problem, *device_).why_not;
  };
  const gemm::AsyncInputProblem fine{.m = 256, .n = 64, .k = 64, .chunks = 2};
  EXPECT_TRUE(gemm::can_run(fine, *device_));
  auto odd = fine;
  odd.k = 12;
  EXPECT_NE(refusal(odd).find("multiples of 8"), std::string::npos) << refusal(odd);
  auto wide = fine;
  wide.out = DType::kF32;
  EXPECT_NE(refusal(wide).find("type of a"), std::string::npos) << refusal(wide);
  auto f32 = fine;
  f32.in = f32.out = DType::kF32;
  EXPECT_NE(refusal(f32).find("no native kernel"), std::string::npos) << refusal(f32);
}

TEST_F(GemmNative, AMissingChunkIsNamedAtTheDeadline) {
  open(DeviceKind::kCuda, quick());
  // More tiles than run at one time.
  check_deadline({.m = 2000, .n = 2440, .k = kK, .pivot = 1, .b_is_column_major = true, .expected = 7},
                 [](std::string_view text) {
                   return text.find("chunk 3") != std::string_view::npos &&
                          text.find("its signal is 6, expected 7") != std::string_view::npos;
                 });
}

}  // namespace
}  // namespace tandem
