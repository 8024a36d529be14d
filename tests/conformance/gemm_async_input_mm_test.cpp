// async_input_mm while its left operand arrives: a second stream fills the chunks, NaN until then, one by one
// and raises their signals, in the product's order or in any other. Compared bit by bit with the plain
// product of the whole. CPUs only: GPUs have no such product yet.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <random>
#include <tandem/base/shard.hpp>
#include <tandem/gemm/async_input_mm.hpp>
#include <tandem/gemm/mm.hpp>
#include <vector>

#include "conformance/fused_harness.hpp"

namespace tandem {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using test::Guarded;

struct Case {
  std::int64_t m = 12;
  std::int64_t n = 9;
  std::int64_t k = 7;
  int chunks = 4;
  int pivot = 0;
  DType in = DType::kBF16;
  DType out = DType::kBF16;
  bool b_is_column_major = false;
  std::uint32_t expected = 1;
};

std::string to_text(const Case& c) {
  return fmt::format("{}x{}x{} in {} chunks from {}, {} -> {}{}, expected {}", c.m, c.n, c.k, c.chunks,
                     c.pivot, to_string(c.in), to_string(c.out),
                     c.b_is_column_major ? ", b column-major" : "", c.expected);
}

/// The tensors of a case; `source` is what a will hold.
struct Operands {
  Operands(Device& device, const Case& c)
      : source(device, Dims{c.m, c.k}, c.in),
        a(device, Dims{c.m, c.k}, c.in),
        b(device, c.b_is_column_major ? Layout{{c.k, c.n}, {1, c.k}} : test::dense({c.k, c.n}), c.in),
        out(device, Dims{c.m, c.n}, c.out),
        reference(device, Dims{c.m, c.n}, c.out),
        signals(device, Dims{c.chunks}, DType::kU32) {
    source.fill([&](std::int64_t idx) { return test::value_of(0, idx, c.in); });
    b.fill([&](std::int64_t idx) { return test::value_of(1, idx, c.in); });
  }
  [[nodiscard]] gemm::AsyncInputMmArgs args(const Case& c) const {
    return {.a = a.view(),
            .b = b.view(),
            .out = out.view(),
            .a_chunk_signals = signals.view(),
            .a_chunk_pivot = c.pivot,
            .expected = c.expected};
  }
  Guarded source, a, b, out, reference, signals;
};

class GemmAsyncInputMm : public ::testing::Test {
 protected:
  static Config quick() {
    Config config;
    config.op_timeout = milliseconds(200);
    config.log_level = LogLevel::kOff;
    return config;
  }

  /// The chunk's bytes, then its signal.
  void bring(const Operands& x, const Case& c, int chunk) {
    const Shard rows = shard_of(c.m, c.chunks, chunk);
    if (rows.size > 0) {
      ASSERT_TRUE(other_->copy(x.source.view().narrow(0, rows.offset, rows.size),
                               x.a.view().narrow(0, rows.offset, rows.size)));
    }
    ASSERT_TRUE(other_->stream_write_value32(x.signals.view(), chunk, c.expected));
  }

  /// No chunk is there yet.
  void reset_signals(const Operands& x, const Case& c) {
    ASSERT_TRUE(stream_->memset32(x.signals.view(), 0, c.expected - 1, c.chunks));
    ASSERT_TRUE(stream_->synchronize());
  }

  void check(const Case& c, bool in_order) {
    SCOPED_TRACE(to_text(c) + (in_order ? "" : ", chunks come in any order"));
    Operands x(*device_, c);
    reset_signals(x, c);
    std::vector<int> arrivals(static_cast<std::size_t>(c.chunks));
    for (int i = 0; i < c.chunks; ++i) arrivals[static_cast<std::size_t>(i)] = (c.pivot + i) % c.chunks;
    if (!in_order) std::shuffle(arrivals.begin(), arrivals.end(), random_);
    const auto enqueued = gemm::async_input_mm(x.args(c), *stream_);
    ASSERT_TRUE(enqueued) << enqueued.error().to_string();
    for (const int chunk : arrivals) {
      ASSERT_TRUE(other_->sleep(microseconds(random_() % 2 * (random_() % 200))));
      bring(x, c, chunk);
    }
    const auto done = stream_->synchronize();
    ASSERT_TRUE(done) << done.error().to_string();
    ASSERT_TRUE(other_->synchronize());
    compare(x);
  }

  void check_complete(const Case& c, int first, int count) {
    SCOPED_TRACE(to_text(c) + fmt::format(", {} complete from {}", count, first));
    Operands x(*device_, c);
    reset_signals(x, c);
    const std::int64_t begin = shard_of(c.m, c.chunks, first).offset;
    const Shard last = shard_of(c.m, c.chunks, first + count - 1);
    const std::int64_t rows = last.offset + last.size - begin;
    Guarded own(*device_, Dims{rows, c.k}, c.in);
    if (rows > 0) {
      ASSERT_TRUE(other_->copy(x.source.view().narrow(0, begin, rows), own.view()));
      ASSERT_TRUE(other_->synchronize());
    }
    gemm::AsyncInputMmArgs args = x.args(c);
    args.complete = gemm::CompleteChunks{.rows = own.view(), .first = first, .count = count};
    const auto enqueued = gemm::async_input_mm(args, *stream_);
    ASSERT_TRUE(enqueued) << enqueued.error().to_string();
    for (int chunk = 0; chunk < c.chunks; ++chunk) {
      if (chunk < first || chunk >= first + count) bring(x, c, chunk);
    }
    const auto done = stream_->synchronize(Deadline::after(milliseconds(20'000)));
    ASSERT_TRUE(done) << done.error().to_string();
    ASSERT_TRUE(other_->synchronize());
    compare(x);
  }

  void compare(Operands& x) {
    ASSERT_TRUE(
        gemm::mm({.a = x.source.view(), .b = x.b.view(), .out = x.reference.view(), .bias = {}}, *stream_));
    ASSERT_TRUE(stream_->synchronize());
    for (Guarded* tensor : {&x.a, &x.b, &x.out, &x.reference, &x.signals}) {
      tensor->download();
      EXPECT_TRUE(tensor->guards_are_whole());
    }
    EXPECT_EQ(x.out.bytes(), x.reference.bytes());
  }

  std::unique_ptr<Device> device_ = open_device({DeviceKind::kCpu, 0}, Config{}).value();
  std::unique_ptr<Stream> stream_ = device_->create_stream().value();
  std::unique_ptr<Stream> other_ = device_->create_stream().value();
  std::mt19937 random_{1};
};

TEST_F(GemmAsyncInputMm, EveryNumberOfChunksAndPivot) {
  for (const int chunks : {1, 2, 3, 4, 5, 8}) {
    for (const std::int64_t m : {1, 2, 7, 8, 12, 17}) {
      for (int pivot = 0; pivot < chunks; ++pivot) {
        for (const bool in_order : {true, false}) check({.m = m, .chunks = chunks, .pivot = pivot}, in_order);
      }
    }
  }
}

TEST_F(GemmAsyncInputMm, EveryTypeAndMemoryOrder) {
  for (const DType in : {DType::kF32, DType::kBF16, DType::kF16}) {
    for (const DType out : {in, DType::kF32}) {
      for (const bool is_column_major : {false, true}) {
        check({.m = 40,
               .n = 65,
               .k = 130,
               .pivot = 2,
               .in = in,
               .out = out,
               .b_is_column_major = is_column_major},
              false);
      }
    }
  }
}

TEST_F(GemmAsyncInputMm, LargerThanItsBlocks) {
  check({.m = 640, .n = 300, .k = 1100, .chunks = 5, .pivot = 3}, true);
  check({.m = 768, .n = 600, .k = 72, .chunks = 2, .pivot = 1, .in = DType::kF32, .out = DType::kF32}, false);
}

TEST_F(GemmAsyncInputMm, EmptySizes) {
  check({.m = 0}, true);
  check({.n = 0}, true);
  check({.k = 0}, true);
  check({.m = 1, .n = 1, .k = 1, .chunks = 1}, true);
}

TEST_F(GemmAsyncInputMm, SignalsAreNumbersOnACircle) {
  for (const std::uint32_t expected : {0U, 1U, 2U, 0x7fffffffU, 0x80000000U, 0xffffffffU})
    check({.pivot = 1, .expected = expected}, true);
  // A later number says that the chunk is there too.
  const Case c{.expected = 0xffffffffU};
  Operands x(*device_, c);
  reset_signals(x, c);
  ASSERT_TRUE(stream_->copy(x.source.view(), x.a.view()));
  for (const std::int64_t later : {0xffffffffLL, 0LL, 5LL, 0x7ffffffeLL}) {
    ASSERT_TRUE(stream_->memset32(x.signals.view(), 0, later, c.chunks));
    x.out.poison();
    ASSERT_TRUE(gemm::async_input_mm(x.args(c), *stream_));
    ASSERT_TRUE(stream_->synchronize()) << later;
    compare(x);
  }
}

TEST_F(GemmAsyncInputMm, EmptyChunksAreNotAwaited) {
  // Chunks of 2 rows: 5 have rows, and the pivot is one that has none.
  const Case c{.m = 9, .chunks = 8, .pivot = 6};
  Operands x(*device_, c);
  reset_signals(x, c);
  ASSERT_TRUE(gemm::async_input_mm(x.args(c), *stream_));
  for (const int chunk : {0, 1, 2, 3, 4}) bring(x, c, chunk);
  const auto done = stream_->synchronize(Deadline::after(milliseconds(20'000)));
  ASSERT_TRUE(done) << done.error().to_string();
  compare(x);
}

// Rows of a chunk that is there stay as they are while one before it is missing.
TEST_F(GemmAsyncInputMm, KeepsTheOrderOfChunks) {
  const Case c{.m = 8, .chunks = 4, .pivot = 2};  // 2, 3, 0, 1
  Operands x(*device_, c);
  reset_signals(x, c);
  ASSERT_TRUE(gemm::async_input_mm(x.args(c), *stream_));
  for (const int chunk : {2, 0, 1}) bring(x, c, chunk);
  ASSERT_TRUE(other_->synchronize());
  ASSERT_FALSE(stream_->synchronize(Deadline::after(milliseconds(30))));
  Guarded now(*device_, Dims{c.m, c.n}, c.out);
  ASSERT_TRUE(other_->copy(x.out.view().narrow(0, 0, 4), now.view().narrow(0, 0, 4)));
  ASSERT_TRUE(other_->synchronize());
  now.download();
  for (std::int64_t idx = 0; idx < 4 * c.n; ++idx) EXPECT_TRUE(std::isnan(now.at(idx))) << idx;
  bring(x, c, 3);
  ASSERT_TRUE(stream_->synchronize());
  ASSERT_TRUE(other_->synchronize());
  compare(x);
}

TEST_F(GemmAsyncInputMm, AMissingChunkIsNamedAtTheDeadline) {
  device_ = open_device({DeviceKind::kCpu, 0}, quick()).value();
  stream_ = device_->create_stream().value();
  other_ = device_->create_stream().value();
  const Case c{.m = 10, .chunks = 4, .pivot = 1, .expected = 7};
  Operands x(*device_, c);
  reset_signals(x, c);
  for (const int chunk : {1, 2, 0}) bring(x, c, chunk);
  ASSERT_TRUE(gemm::async_input_mm(x.args(c), *stream_));
  const auto done = stream_->synchronize();
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code(), ErrorCode::kTimeout);
  EXPECT_EQ(done.error().text(),
            "async_input_mm: chunk 3 of 4 (rows 9 to 9 of a) had not arrived after 200 ms: its signal is 6, "
            "expected 7");
  // The stream goes on.
  bring(x, c, 3);
  ASSERT_TRUE(gemm::async_input_mm(x.args(c), *stream_));
  ASSERT_TRUE(stream_->synchronize());
  compare(x);
}

// Chunks that are there lie elsewhere; a's own memory of them stays NaN, and their signals are never raised.
TEST_F(GemmAsyncInputMm, CompleteChunksAreReadWhereTheyLie) {
  for (const std::int64_t m : {3, 8, 17}) {
    for (const int chunks : {1, 3, 5}) {
      for (int first = 0; first < chunks; ++first) {
        for (int count = 1; count <= chunks - first; ++count)
          check_complete({.m = m, .chunks = chunks, .pivot = static_cast<int>(random_() % chunks)}, first,
                         count);
      }
    }
  }
}

// A writer that knows nothing of the sleeper, as a kernel of the user's own.
TEST_F(GemmAsyncInputMm, PlainStoresAreNoticedToo) {
  const Case c;
  Operands x(*device_, c);
  reset_signals(x, c);
  ASSERT_TRUE(gemm::async_input_mm(x.args(c), *stream_));
  for (int chunk = 0; chunk < c.chunks; ++chunk) {
    const Shard rows = shard_of(c.m, c.chunks, chunk);
    ASSERT_TRUE(other_->copy(x.source.view().narrow(0, rows.offset, rows.size),
                             x.a.view().narrow(0, rows.offset, rows.size)));
    ASSERT_TRUE(other_->synchronize());
    std::atomic_ref(x.signals.view().data_as<std::uint32_t>()[chunk]).store(c.expected);
  }
  ASSERT_TRUE(stream_->synchronize());
  compare(x);
}

}  // namespace
}  // namespace tandem
