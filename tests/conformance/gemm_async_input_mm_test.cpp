// async_input_mm while its left operand arrives: a second stream fills the chunks, NaN until then, one by one
// and raises their signals, in the product's order or in any other. Compared bit by bit with the plain
// product of the whole. CPUs only: GPUs have no such product yet.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <tandem/gemm/mm.hpp>

#include "conformance/gemm_chunked_product.hpp"

namespace tandem {
namespace {

using std::chrono::milliseconds;
using test::Guarded;
using Case = test::ChunkedProduct;
using Operands = test::ChunkedOperands;

class GemmAsyncInputMm : public test::ChunkedProductTest {
 protected:
  void SetUp() override { open(DeviceKind::kCpu, Config{}); }
  Result<void> multiply_whole(const Operands& x) override {
    return gemm::mm({.a = x.source.view(), .b = x.b.view(), .out = x.reference.view(), .bias = {}}, *stream_);
  }
};

TEST_F(GemmAsyncInputMm, EveryNumberOfChunksAndPivot) {
  for (const int chunks : {1, 2, 3, 4, 5, 8}) {
    for (const std::int64_t m : {1, 2, 7, 8, 12, 17}) {
      for (int pivot = 0; pivot < chunks; ++pivot) {
        for (const bool is_shuffled : {false, true})
          check({.m = m, .chunks = chunks, .pivot = pivot, .is_shuffled = is_shuffled});
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
               .b_is_column_major = is_column_major,
               .is_shuffled = true});
      }
    }
  }
}

TEST_F(GemmAsyncInputMm, LargerThanItsBlocks) {
  check({.m = 640, .n = 300, .k = 1100, .chunks = 5, .pivot = 3});
  check({.m = 768,
         .n = 600,
         .k = 72,
         .chunks = 2,
         .pivot = 1,
         .in = DType::kF32,
         .out = DType::kF32,
         .is_shuffled = true});
}

TEST_F(GemmAsyncInputMm, EmptySizes) {
  check({.m = 0});
  check({.n = 0});
  check({.k = 0});
  check({.m = 1, .n = 1, .k = 1, .chunks = 1});
}

TEST_F(GemmAsyncInputMm, SignalsAreNumbersOnACircle) {
  for (const std::uint32_t expected : {0U, 1U, 2U, 0x7fffffffU, 0x80000000U, 0xffffffffU})
    check({.pivot = 1, .expected = expected});
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
  open(DeviceKind::kCpu, quick());
  check_deadline({.m = 10, .pivot = 1, .expected = 7}, [](std::string_view text) {
    return text ==
           "async_input_mm: chunk 3 of 4 (rows 9 to 9 of a) had not arrived after 200 ms: its "
           "signal is 6, expected 7";
  });
}

// Chunks that are there lie elsewhere; a's own memory of them stays NaN, and their signals are never raised.
TEST_F(GemmAsyncInputMm, CompleteChunksAreReadWhereTheyLie) {
  for (const std::int64_t m : {3, 8, 17}) {
    for (const int chunks : {1, 3, 5}) {
      for (int first = 0; first < chunks; ++first) {
        for (int count = 1; count <= chunks - first; ++count)
          check({.m = m,
                 .chunks = chunks,
                 .pivot = static_cast<int>(random_() % chunks),
                 .complete_first = first,
                 .complete_count = count});
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
