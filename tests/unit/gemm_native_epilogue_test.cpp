// What native kernels add to their sums, each kernel by its name: a bias and an addend of every type, in one
// rounding. Against float64.
#include <gtest/gtest.h>

#include <cmath>
#include <optional>
#include <string>

#include "base/format.hpp"
#include "conformance/gemm_chunked_product.hpp"
#include "gemm/cuda/sm90/instances.hpp"
#include "gemm/product.hpp"
#include "support/simulated.hpp"

namespace tandem {
namespace {

using gemm::SumsKind;
using gemm::cuda::AsyncInputKernel;
using test::Guarded;

struct Case {
  std::int64_t m = 200;
  std::int64_t n = 264;
  std::int64_t k = 144;
  int chunks = 1;
  int complete = 0;  ///< the chunk that is there from the start
  std::optional<DType> bias = {};
  std::optional<DType> addend = {};
  bool is_in_place = false;  ///< the addend is out
};

std::string to_text(const AsyncInputKernel& kernel, const Case& c) {
  return fmt::format("{}: {}x{}x{} in {} chunks, chunk {} complete{}{}{}", kernel.name, c.m, c.n, c.k,
                     c.chunks, c.complete, c.bias ? fmt::format(" + bias {}", to_string(*c.bias)) : "",
                     c.addend ? fmt::format(" + addend {}", to_string(*c.addend)) : "",
                     c.is_in_place ? " in place" : "");
}

/// What a kernel takes of a case: those with clusters of columns are for few rows, in whole clusters.
Case fitted(const AsyncInputKernel& kernel, Case c) {
  constexpr std::int64_t kFewRows = 384;
  const gemm::Tiling& tiling = kernel.tiling;
  if (tiling.cluster_columns == 1) return c;
  if (c.m > kFewRows) {
    c.m = kFewRows;
    c.chunks = 1;
    c.complete = 0;
  }
  while ((c.n + tiling.tile_columns - 1) / tiling.tile_columns % tiling.cluster_columns != 0)
    c.n += tiling.tile_columns;
  return c;
}

// Bias and addend are large and nearly cancel: a rounding between them would be seen.
double bias_value(std::int64_t column) {
  return 64.0 + static_cast<double>(column % 61);
}
double addend_value(DType dtype, std::int64_t row, std::int64_t column) {
  // The last part is not there in 16 bits.
  return static_cast<double>(row % 13) / 2 - bias_value(column) + (dtype == DType::kF32 ? 0x1p-9 : 0);
}

class GemmNativeEpilogue : public test::ChunkedProductTest {
 protected:
  void SetUp() override {
    if (testing::num_test_gpus() == 0) GTEST_SKIP() << "needs a GPU";
  }
  Result<void> multiply_whole(const test::ChunkedOperands&) override { return {}; }

  /// The only kernel that may run.
  void open_with(const AsyncInputKernel& kernel) {
    Config config;
    config.native_kernel = kernel.name;
    open(DeviceKind::kCuda, config);
  }
  void check(const AsyncInputKernel& kernel, const Case& wanted);

 private:
  void run(const AsyncInputKernel& kernel, const Case& c, const Guarded& source, gemm::ProductArgs args);
};

void GemmNativeEpilogue::run(const AsyncInputKernel& kernel, const Case& c, const Guarded& source,
                             gemm::ProductArgs args) {
  const test::ChunkedProduct chunked{.m = c.m, .chunks = c.chunks};
  const Guarded a(*device_, Dims{c.m, c.k}, kernel.dtype);
  const Guarded signals(*device_, Dims{c.chunks}, DType::kU32);
  const Shard own = chunked.rows_of(c.complete, 1);
  const TensorView there = source.host().narrow(0, own.offset, own.size);
  const Guarded complete(*device_, test::dense(there.sizes), there);
  const gemm::Arrival arrival{.signals = signals.view(),
                              .pivot = c.complete,
                              .in_order = false,
                              .complete = gemm::CompleteChunks{complete.view(), c.complete, 1}};
  args.a = &a.view();
  args.arrival = &arrival;
  ASSERT_TRUE(stream_->memset32(signals.view(), 0, 0, c.chunks));
  ASSERT_TRUE(stream_->synchronize());
  const auto enqueued = gemm::run(args, *stream_);
  ASSERT_TRUE(enqueued) << enqueued.error().to_string();
  for (int chunk = 0; chunk < c.chunks; ++chunk) {
    if (chunk == c.complete) continue;
    const Shard rows = chunked.rows_of(chunk, 1);
    ASSERT_TRUE(other_->copy(source.view().narrow(0, rows.offset, rows.size),
                             a.view().narrow(0, rows.offset, rows.size)));
    ASSERT_TRUE(other_->stream_write_value32(signals.view(), chunk, 1));
  }
  const auto done = stream_->synchronize();
  ASSERT_TRUE(done) << done.error().to_string();
  ASSERT_TRUE(other_->synchronize());
}

void GemmNativeEpilogue::check(const AsyncInputKernel& kernel, const Case& wanted) {
  const Case c = fitted(kernel, wanted);
  SCOPED_TRACE(to_text(kernel, c));
  const Guarded source(*device_, test::dense({c.m, c.k}), test::generated({c.m, c.k}, kernel.dtype, 0));
  const Guarded b(*device_, kernel.b_is_column_major ? Layout{{c.k, c.n}, {1, c.k}} : test::dense({c.k, c.n}),
                  test::generated({c.k, c.n}, kernel.dtype, 1));
  const Guarded out(*device_, Dims{c.m, c.n}, kernel.out);
  const Guarded bias(*device_, Dims{c.n}, c.bias.value_or(DType::kF32));
  const Guarded beside(*device_, Dims{c.m, c.n}, c.addend.value_or(kernel.out));
  const Guarded& addend = c.is_in_place ? out : beside;
  bias.fill(bias_value);
  if (c.addend) {
    addend.fill([&](std::int64_t i) { return addend_value(*c.addend, i / c.n, i % c.n); });
  }
  gemm::ProductArgs args{.b = &b.view(), .out = &out.view()};
  if (c.bias) args.bias = &bias.view();
  if (c.addend) args.addend = &addend.view();
  args.fast_accum = kernel.sums == SumsKind::kScaled;
  run(kernel, c, source, args);
  if (HasFatalFailure()) return;
  for (const Guarded* one : {&source, &b, &out, &bias, &beside}) {
    one->download();
    ASSERT_TRUE(one->guards_are_whole());
  }
  for (int i = 0; i < 200; ++i) {
    const auto row = static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(c.m));
    const auto column = static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(c.n));
    double sum = c.bias ? bias_value(column) : 0;
    if (c.addend) sum += addend_value(*c.addend, row, column);
    double size = 0;
    for (std::int64_t k = 0; k < c.k; ++k) {
      const double product = source.at(row * c.k + k) * b.at(k * c.n + column);
      sum += product;
      size += std::abs(product);
    }
    const double roundoff = kernel.dtype == DType::kF8E4M3 ? harness::kTensorCoreRoundoff : 0x1p-20;
    ASSERT_NEAR(out.at(row * c.n + column), sum,
                roundoff * size + 1e-4 + harness::rounding_error(kernel.out, sum))
        << row << ", " << column;
  }
}

TEST_F(GemmNativeEpilogue, EveryKernelAddsEveryType) {
  for (const AsyncInputKernel& kernel : gemm::cuda::async_input_kernels()) {
    open_with(kernel);
    for (const DType bias : {DType::kF32, DType::kBF16, DType::kF16}) check(kernel, {.bias = bias});
    for (const DType addend : {DType::kF32, kernel.out}) {
      check(kernel, {.addend = addend});
      check(kernel, {.bias = DType::kF32, .addend = addend});
    }
    check(kernel, {.bias = kernel.out, .addend = kernel.out, .is_in_place = true});
  }
}

// More than one wave of tiles: simulated GPUs have 16 multiprocessors.
TEST_F(GemmNativeEpilogue, EveryKernelRunsInWaves) {
  for (const AsyncInputKernel& kernel : gemm::cuda::async_input_kernels()) {
    open_with(kernel);
    const bool has_few_tiles = testing::is_simulated(*device_);
    check(kernel, {.m = 2048,
                   .n = has_few_tiles ? 648 : 2440,
                   .k = has_few_tiles ? 272 : 528,
                   .chunks = 8,
                   .complete = 4,
                   .bias = kernel.out});
  }
}

TEST_F(GemmNativeEpilogue, AddendsOfChunks) {
  open(DeviceKind::kCuda, Config{});
  for (const AsyncInputKernel& kernel : gemm::cuda::async_input_kernels()) {
    // Chunks of whole tiles, chunks that end inside a tile, and a short last one.
    for (const std::int64_t m : {512, 300, 299}) {
      for (const DType addend : {DType::kF32, kernel.out})
        check(kernel, {.m = m, .chunks = 2, .complete = 1, .bias = DType::kF32, .addend = addend});
    }
  }
}

// Tiles, and steps of k, that end outside of the matrices.
TEST_F(GemmNativeEpilogue, EveryKernelTakesEverySizeOfWholeVectors) {
  for (const AsyncInputKernel& kernel : gemm::cuda::async_input_kernels()) {
    open_with(kernel);
    const std::int64_t vector = kernel.dtype == DType::kF8E4M3 ? 16 : 8;
    for (const std::int64_t n : {8, 56, 64, 72, 120, 248, 264, 520}) {
      for (const std::int64_t k : {1, 3, 7, 9, 17})
        check(kernel, {.n = n, .k = k * vector, .bias = DType::kF32});
    }
  }
}

TEST_F(GemmNativeEpilogue, WhatIsNotAddedIsRefusedWithTheReason) {
  open(DeviceKind::kCuda, Config{});
  gemm::Product product{.m = 256,
                        .n = 64,
                        .k = 64,
                        .a = DType::kBF16,
                        .b = DType::kBF16,
                        .out = DType::kBF16,
                        .arrival = gemm::Chunks{.count = 2}};
  const auto refusal = [&] { return gemm::can_run(product, *device_).why_not; };
  product.epilogue = {.addend = DType::kF32, .bias = DType::kF16};
  EXPECT_TRUE(gemm::can_run(product, *device_)) << refusal();
  product.epilogue = {.accumulate = true};
  EXPECT_NE(refusal().find("accumulate"), std::string::npos) << refusal();
  product.epilogue = {.bias = DType::kF8E4M3};
  EXPECT_NE(refusal().find("a bias of f32, bf16 or f16"), std::string::npos) << refusal();
  product.epilogue = {};
  product.a_scale = gemm::Scale::kTensor;
  EXPECT_NE(refusal().find("of 16 bits do not scale"), std::string::npos) << refusal();
}

}  // namespace
}  // namespace tandem
