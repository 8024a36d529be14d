// async_input_mm by the native kernels of a GPU: any chunks, ragged ones, some complete from the start and
// elsewhere, the others late and in any order. Bit by bit what the same kernels make of operands that are all
// there, which in turn is compared with float64.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <random>
#include <tandem/base/shard.hpp>
#include <tandem/gemm/async_input_mm.hpp>
#include <vector>

#include "conformance/fused_harness.hpp"
#include "harness/reference.hpp"

namespace tandem {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using test::Guarded;

struct Case {
  std::int64_t m = 300;
  std::int64_t n = 264;
  std::int64_t k = 136;
  int chunks = 4;
  int pivot = 0;
  int together = 1;
  int complete_first = 0;
  int complete_count = 0;
  DType dtype = DType::kBF16;
  bool b_is_column_major = true;
  std::uint32_t expected = 1;
  bool in_order = true;

  [[nodiscard]] Shard complete_rows() const {
    const Shard begin = shard_of(m, chunks, complete_first);
    const std::int64_t end = complete_count == 0
                                 ? begin.offset
                                 : shard_of(m, chunks, complete_first + complete_count - 1).offset +
                                       shard_of(m, chunks, complete_first + complete_count - 1).size;
    return {begin.offset, end - begin.offset};
  }
  [[nodiscard]] bool is_complete(int chunk) const {
    return chunk >= complete_first && chunk < complete_first + complete_count;
  }
};

std::string to_text(const Case& c) {
  return fmt::format("{}x{}x{} {} in {} chunks from {} by {}, [{}, {}) complete{}{}", c.m, c.n, c.k,
                     to_string(c.dtype), c.chunks, c.pivot, c.together, c.complete_first,
                     c.complete_first + c.complete_count, c.b_is_column_major ? ", b column-major" : "",
                     c.in_order ? "" : ", in any order");
}

struct Operands {
  Operands(Device& device, const Case& c)
      : source(device, Dims{c.m, c.k}, c.dtype),
        a(device, Dims{c.m, c.k}, c.dtype),
        complete(device, Dims{c.complete_rows().size, c.k}, c.dtype),
        b(device, c.b_is_column_major ? Layout{{c.k, c.n}, {1, c.k}} : test::dense({c.k, c.n}), c.dtype),
        out(device, Dims{c.m, c.n}, c.dtype),
        reference(device, Dims{c.m, c.n}, c.dtype),
        signals(device, Dims{c.chunks}, DType::kU32) {
    source.fill([&](std::int64_t idx) { return test::value_of(0, idx, c.dtype); });
    b.fill([&](std::int64_t idx) { return test::value_of(1, idx, c.dtype); });
    const std::int64_t first = c.complete_rows().offset * c.k;
    complete.fill([&](std::int64_t idx) { return test::value_of(0, first + idx, c.dtype); });
  }
  [[nodiscard]] gemm::AsyncInputMmArgs args(const Case& c) const {
    gemm::AsyncInputMmArgs args{.a = a.view(),
                                .b = b.view(),
                                .out = out.view(),
                                .a_chunk_signals = signals.view(),
                                .a_chunk_pivot = c.pivot,
                                .expected = c.expected,
                                .chunks_together = c.together,
                                .in_order = c.in_order};
    if (c.complete_count > 0) args.complete = {complete.view(), c.complete_first, c.complete_count};
    return args;
  }
  Guarded source, a, complete, b, out, reference, signals;
};

class GemmNative : public ::testing::Test {
 protected:
  void SetUp() override {
    if (testing::num_test_gpus() == 0) GTEST_SKIP() << "needs a GPU";
    open(Config{});
  }
  void open(const Config& config) {
    stream_.reset();
    other_.reset();
    device_ = open_device({DeviceKind::kCuda, 0}, config).value();
    stream_ = device_->create_stream().value();
    other_ = device_->create_stream().value();
  }

  void bring(const Operands& x, const Case& c, int chunk) {
    const Shard rows = shard_of(c.m, c.chunks, chunk);
    if (rows.size > 0) {
      ASSERT_TRUE(other_->copy(x.source.view().narrow(0, rows.offset, rows.size),
                               x.a.view().narrow(0, rows.offset, rows.size)));
    }
    ASSERT_TRUE(other_->stream_write_value32(x.signals.view(), chunk, c.expected));
  }
  void reset_signals(const Operands& x, const Case& c) {
    ASSERT_TRUE(stream_->memset32(x.signals.view(), 0, c.expected - 1, c.chunks));
    ASSERT_TRUE(stream_->synchronize());
  }

  void check(const Case& c) {
    SCOPED_TRACE(to_text(c));
    Operands x(*device_, c);
    reset_signals(x, c);
    std::vector<int> arrivals;
    for (int i = 0; i < c.chunks; ++i) {
      if (!c.is_complete(i)) arrivals.push_back(i);
    }
    std::shuffle(arrivals.begin(), arrivals.end(), random_);
    const auto enqueued = gemm::async_input_mm(x.args(c), *stream_);
    ASSERT_TRUE(enqueued) << enqueued.error().to_string();
    for (const int chunk : arrivals) {
      ASSERT_TRUE(other_->sleep(microseconds(random_() % 2 * (random_() % 50))));
      bring(x, c, chunk);
    }
    const auto done = stream_->synchronize();
    ASSERT_TRUE(done) << done.error().to_string();
    ASSERT_TRUE(other_->synchronize());
    compare(x, c);
  }

  /// The same kernels over all of a in one complete chunk.
  void compare(Operands& x, const Case& c) {
    ASSERT_TRUE(gemm::async_input_mm({.a = x.source.view(),
                                      .b = x.b.view(),
                                      .out = x.reference.view(),
                                      .a_chunk_signals = x.signals.view().narrow(0, 0, 1),
                                      .complete = gemm::CompleteChunks{x.source.view(), 0, 1}},
                                     *stream_));
    ASSERT_TRUE(stream_->synchronize());
    for (Guarded* tensor : {&x.a, &x.b, &x.out, &x.reference, &x.signals, &x.complete}) {
      tensor->download();
      EXPECT_TRUE(tensor->guards_are_whole());
    }
    EXPECT_EQ(x.out.bytes(), x.reference.bytes());
    check_samples(x, c);
  }

  void check_samples(const Operands& x, const Case& c) {
    for (int i = 0; i < 64 && c.m * c.n > 0; ++i) {
      const auto at = static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(c.m * c.n));
      double sum = 0;
      for (std::int64_t k = 0; k < c.k; ++k)
        sum +=
            test::value_of(0, at / c.n * c.k + k, c.dtype) * test::value_of(1, k * c.n + at % c.n, c.dtype);
      const double bound = 1e-6 * static_cast<double>(c.k) + harness::rounding_error(c.dtype, sum);
      ASSERT_NEAR(x.out.at(at), sum, bound) << at;
    }
  }

  std::unique_ptr<Device> device_;
  std::unique_ptr<Stream> stream_, other_;
  std::mt19937 random_{1};
};

TEST_F(GemmNative, EveryNumberOfChunksAndPivot) {
  for (const int chunks : {1, 2, 3, 4, 8}) {
    for (const std::int64_t m : {1, 7, 128, 130, 300, 520, 1024}) {
      for (int pivot = 0; pivot < chunks; ++pivot) check({.m = m, .chunks = chunks, .pivot = pivot});
    }
  }
}

TEST_F(GemmNative, EveryTypeAndMemoryOrder) {
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    for (const bool is_column_major : {false, true}) {
      for (const std::int64_t m : {256, 400, 1024}) {
        check({.m = m, .pivot = 2, .dtype = dtype, .b_is_column_major = is_column_major});
        check({.m = m, .n = 8, .k = 8, .chunks = 3, .dtype = dtype, .b_is_column_major = is_column_major});
      }
    }
  }
}

TEST_F(GemmNative, CompleteChunksLieElsewhere) {
  for (const std::int64_t m : {40, 512, 600, 1500, 2048}) {
    for (const int chunks : {2, 3, 4, 8}) {
      for (int first = 0; first < chunks; ++first) {
        const int most = std::min(2, chunks - first);
        check({.m = m, .chunks = chunks, .pivot = first, .complete_first = first, .complete_count = most});
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
    c.dtype = random_() % 2 == 0 ? DType::kBF16 : DType::kF16;
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
                 .chunks = chunks,
                 .pivot = pivot,
                 .together = together,
                 .complete_first = pivot,
                 .complete_count = std::min(together, chunks - pivot)});
        }
      }
    }
  }
}

// Chunks of an odd number of rows of tiles, the last of which may be short: pairs reach into the next chunk.
TEST_F(GemmNative, PairsOfTwoChunks) {
  for (const char* kernel : {"bf16 t 128x256 2x1", "bf16 t 128x112 2x1"}) {
    SCOPED_TRACE(kernel);
    Config config;
    config.native_kernel = kernel;
    open(config);
    for (const int chunks : {2, 4, 6, 8}) {
      for (const std::int64_t rows : {120, 128, 300, 330, 383, 384, 600}) {
        // The plain product that this is compared with needs pairs as well.
        if ((rows * chunks + 127) / 128 % 2 != 0) continue;
        for (int pivot = 0; pivot < chunks; ++pivot) {
          check({.m = rows * chunks,
                 .n = 520,
                 .chunks = chunks,
                 .pivot = pivot,
                 .complete_first = pivot,
                 .complete_count = 1,
                 .in_order = false});
        }
      }
    }
  }
}

// Each by its name, on a problem of more than one wave of tiles.
TEST_F(GemmNative, EveryKernel) {
  for (const char* kernel :
       {"bf16 t 128x256 2x1", "bf16 t 128x224 2x1", "bf16 t 128x208 2x1", "bf16 t 128x112 2x1",
        "bf16 t 128x128 1x1", "bf16 n 128x256 1x1", "f16 t 128x256 1x1", "f16 n 128x256 1x1"}) {
    SCOPED_TRACE(kernel);
    Config config;
    config.native_kernel = kernel;
    open(config);
    const std::string_view name = kernel;
    check({.m = 2048,
           .n = 2440,
           .k = 520,
           .chunks = 8,
           .pivot = 4,
           .together = 2,
           .complete_first = 4,
           .complete_count = 2,
           .dtype = name.starts_with("bf16") ? DType::kBF16 : DType::kF16,
           .b_is_column_major = name.find(" t ") != std::string_view::npos});
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
  Config config;
  config.op_timeout = milliseconds(200);
  config.log_level = LogLevel::kOff;
  open(config);
  const Case c{.m = 2000, .n = 2440, .pivot = 1, .expected = 7};  // more tiles than run at one time
  Operands x(*device_, c);
  reset_signals(x, c);
  for (const int chunk : {1, 2, 0}) bring(x, c, chunk);
  ASSERT_TRUE(gemm::async_input_mm(x.args(c), *stream_));
  const auto done = stream_->synchronize();
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code(), ErrorCode::kTimeout);
  EXPECT_NE(done.error().text().find("chunk 3"), std::string::npos) << done.error().text();
  EXPECT_NE(done.error().text().find("its signal is 6, expected 7"), std::string::npos)
      << done.error().text();
  // The stream goes on.
  bring(x, c, 3);
  ASSERT_TRUE(gemm::async_input_mm(x.args(c), *stream_));
  const auto again = stream_->synchronize();
  ASSERT_TRUE(again) << again.error().to_string();
  compare(x, c);
}

}  // namespace
}  // namespace tandem
