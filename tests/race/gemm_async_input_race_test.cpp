// async_input_mm beside the stream that brings its left operand: plain memory, ordered by the signals alone.
// The thread sanitizer must have nothing to say.
#include <gtest/gtest.h>

#include <cstdint>
#include <tandem/backend/backend.hpp>
#include <tandem/gemm/async_input_mm.hpp>
#include <vector>

namespace tandem::gemm {
namespace {

TEST(GemmAsyncInputRace, ChunksComeWhileOthersAreMultiplied) {
  constexpr std::int64_t kRows = 24;
  constexpr std::int64_t kChunks = 6;
  constexpr std::int64_t kRounds = 40;
  const auto device = open_device({DeviceKind::kCpu, 0}, Config{}).value();
  const auto consumer = device->create_stream().value();
  const auto producer = device->create_stream().value();
  std::vector<float> source(kRows * 8, 1);
  std::vector<float> a(source.size());
  std::vector<float> b(8 * 4, 1);
  std::vector<float> out(kRows * 4);
  std::vector<std::uint32_t> signals(kChunks);
  const auto rows_of = [](std::vector<float>& x) {
    return TensorView::contiguous(x.data(), {kRows, static_cast<std::int64_t>(x.size()) / kRows},
                                  DType::kF32);
  };
  const TensorView words = TensorView::contiguous(signals.data(), {kChunks}, DType::kU32);
  for (std::uint32_t round = 1; round <= kRounds; ++round) {
    const AsyncInputMmArgs args{.a = rows_of(a),
                                .b = TensorView::contiguous(b.data(), {8, 4}, DType::kF32),
                                .out = rows_of(out),
                                .a_chunk_signals = words,
                                .a_chunk_pivot = round % kChunks,
                                .expected = round};
    ASSERT_TRUE(async_input_mm(args, *consumer));
    for (std::int64_t i = 0; i < kChunks; ++i) {
      const std::int64_t chunk = (round + i) % kChunks;
      ASSERT_TRUE(producer->copy(rows_of(source).narrow(0, 4 * chunk, 4), args.a.narrow(0, 4 * chunk, 4)));
      ASSERT_TRUE(producer->stream_write_value32(words, chunk, round));
    }
    // The next round's chunks overwrite these.
    ASSERT_TRUE(producer->wait(*consumer));
  }
  ASSERT_TRUE(consumer->synchronize());
  ASSERT_TRUE(producer->synchronize());
  EXPECT_EQ(out, std::vector<float>(kRows * 4, 8));
}

}  // namespace
}  // namespace tandem::gemm
