#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <tandem/base/shard.hpp>
#include <tandem/gemm/async_input_mm.hpp>
#include <vector>

#include "conformance/fused_harness.hpp"

// Products whose left operand arrives in chunks while they run, by a second stream.

namespace tandem::test {

struct ChunkedProduct {
  std::int64_t m = 12;
  std::int64_t n = 9;
  std::int64_t k = 7;
  int chunks = 4;
  int pivot = 0;
  int together = 1;
  int complete_first = 0;
  int complete_count = 0;  ///< chunks that are there from the start, elsewhere
  DType in = DType::kBF16;
  DType out = DType::kBF16;
  bool b_is_column_major = false;
  std::uint32_t expected = 1;
  bool in_order = true;      ///< what the product is told
  bool is_shuffled = false;  ///< how chunks come

  /// The rows of chunks [first, first + count).
  [[nodiscard]] Shard rows_of(int first, int count) const {
    const std::int64_t stride = shard_stride(m, chunks);
    const std::int64_t begin = std::min(m, first * stride);
    return {begin, std::min(m, (first + count) * stride) - begin};
  }
  [[nodiscard]] bool is_complete(int chunk) const {
    return chunk >= complete_first && chunk < complete_first + complete_count;
  }
};

inline std::string to_text(const ChunkedProduct& c) {
  return fmt::format("{}x{}x{} {} -> {} in {} chunks from {} by {}, [{}, {}) complete{}, expected {}{}{}",
                     c.m, c.n, c.k, to_string(c.in), to_string(c.out), c.chunks, c.pivot, c.together,
                     c.complete_first, c.complete_first + c.complete_count,
                     c.b_is_column_major ? ", b column-major" : "", c.expected,
                     c.in_order ? "" : ", in any order", c.is_shuffled ? ", shuffled" : "");
}

/// `source` is what a will hold.
struct ChunkedOperands {
  ChunkedOperands(Device& device, const ChunkedProduct& c)
      : source(device, dense({c.m, c.k}), generated({c.m, c.k}, c.in, 0)),
        a(device, Dims{c.m, c.k}, c.in),
        b(device, c.b_is_column_major ? Layout{{c.k, c.n}, {1, c.k}} : dense({c.k, c.n}),
          generated({c.k, c.n}, c.in, 1)),
        out(device, Dims{c.m, c.n}, c.out),
        reference(device, Dims{c.m, c.n}, c.out),
        signals(device, Dims{c.chunks}, DType::kU32),
        float64({.a = source.host(), .b = b.host()}) {
    const Shard rows = c.rows_of(c.complete_first, c.complete_count);
    const TensorView there = source.host().narrow(0, rows.offset, rows.size);
    complete.emplace(device, dense(there.sizes), there);
  }
  [[nodiscard]] gemm::AsyncInputMmArgs args(const ChunkedProduct& c) const {
    gemm::AsyncInputMmArgs args{.a = a.view(),
                                .b = b.view(),
                                .out = out.view(),
                                .a_chunk_signals = signals.view(),
                                .a_chunk_pivot = c.pivot,
                                .expected = c.expected,
                                .chunks_together = c.together,
                                .in_order = c.in_order};
    if (c.complete_count > 0) args.complete = {complete->view(), c.complete_first, c.complete_count};
    return args;
  }
  Guarded source, a, b, out, reference, signals;
  std::optional<Guarded> complete;
  harness::ProductReference float64;  ///< of the operands as they were before any op
};

class ChunkedProductTest : public ::testing::Test {
 protected:
  void open(DeviceKind kind, const Config& config) {
    stream_.reset();
    other_.reset();
    device_ = open_device({kind, 0}, config).value();
    stream_ = device_->create_stream().value();
    other_ = device_->create_stream().value();
  }
  static Config quick() {
    Config config;
    config.op_timeout = std::chrono::milliseconds(200);
    config.log_level = LogLevel::kOff;
    return config;
  }

  /// The chunk's bytes, then its signal.
  void bring(const ChunkedOperands& x, const ChunkedProduct& c, int chunk) {
    const Shard rows = c.rows_of(chunk, 1);
    if (rows.size > 0) {
      ASSERT_TRUE(other_->copy(x.source.view().narrow(0, rows.offset, rows.size),
                               x.a.view().narrow(0, rows.offset, rows.size)));
    }
    ASSERT_TRUE(other_->stream_write_value32(x.signals.view(), chunk, c.expected));
  }
  /// No chunk is there yet.
  void reset_signals(const ChunkedOperands& x, const ChunkedProduct& c) {
    ASSERT_TRUE(stream_->memset32(x.signals.view(), 0, c.expected - 1, c.chunks));
    ASSERT_TRUE(stream_->synchronize());
  }

  void check(const ChunkedProduct& c) {
    SCOPED_TRACE(to_text(c));
    ChunkedOperands x(*device_, c);
    reset_signals(x, c);
    std::vector<int> arrivals;
    for (int i = 0; i < c.chunks; ++i) {
      const int chunk = (c.pivot + i) % c.chunks;
      if (!c.is_complete(chunk)) arrivals.push_back(chunk);
    }
    if (c.is_shuffled) std::shuffle(arrivals.begin(), arrivals.end(), random_);
    const auto enqueued = gemm::async_input_mm(x.args(c), *stream_);
    ASSERT_TRUE(enqueued) << enqueued.error().to_string();
    for (const int chunk : arrivals) {
      ASSERT_TRUE(other_->sleep(std::chrono::microseconds(random_() % 2 * (random_() % 100))));
      bring(x, c, chunk);
    }
    const auto done = stream_->synchronize();
    ASSERT_TRUE(done) << done.error().to_string();
    ASSERT_TRUE(other_->synchronize());
    compare(x);
  }

  /// All but the last chunk, which the error names; then the stream goes on. `is_right`: of the error's text.
  void check_deadline(const ChunkedProduct& c, const std::function<bool(std::string_view text)>& is_right) {
    ChunkedOperands x(*device_, c);
    reset_signals(x, c);
    for (int chunk = 0; chunk < c.chunks - 1; ++chunk) bring(x, c, chunk);
    ASSERT_TRUE(gemm::async_input_mm(x.args(c), *stream_));
    const auto done = stream_->synchronize();
    ASSERT_FALSE(done);
    EXPECT_EQ(done.error().code(), ErrorCode::kTimeout);
    EXPECT_TRUE(is_right(done.error().text())) << done.error().text();
    bring(x, c, c.chunks - 1);
    ASSERT_TRUE(gemm::async_input_mm(x.args(c), *stream_));
    const auto again = stream_->synchronize();
    ASSERT_TRUE(again) << again.error().to_string();
    compare(x);
  }

  /// The product whose bits out must have, of all of a.
  virtual Result<void> multiply_whole(const ChunkedOperands& x) = 0;

  void compare(const ChunkedOperands& x) {
    ASSERT_TRUE(multiply_whole(x));
    ASSERT_TRUE(stream_->synchronize());
    for (const Guarded* tensor : {&x.a, &x.b, &x.out, &x.reference, &x.signals, &*x.complete}) {
      tensor->download();
      EXPECT_TRUE(tensor->guards_are_whole());
    }
    EXPECT_EQ(x.out.bytes(), x.reference.bytes());
    check_samples(x);
  }

  /// Closer to float64 than the worst case of a sum.
  void check_samples(const ChunkedOperands& x) {
    const TensorView& out = x.out.host();
    for (int i = 0; i < 64 && out.numel() > 0; ++i) {
      const auto at = static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(out.numel()));
      const double need = x.float64.sum_at(at / out.size(1), at % out.size(1)).value;
      const double bound =
          1e-6 * static_cast<double>(x.b.view().size(0)) + harness::rounding_error(out.dtype, need);
      ASSERT_NEAR(x.out.at(at), need, bound) << at;
    }
  }

  std::unique_ptr<Device> device_;
  std::unique_ptr<Stream> stream_, other_;
  std::mt19937 random_{1};
};

}  // namespace tandem::test
