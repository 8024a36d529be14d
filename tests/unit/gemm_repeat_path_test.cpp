// What a product enqueues again and again allocates nothing.
#include <gtest/gtest.h>

#include <array>
#include <tandem/backend/backend.hpp>
#include <tandem/gemm/quantize.hpp>

#include "gemm/product.hpp"
#include "support/allocation_count.hpp"

namespace tandem::gemm {
namespace {

/// In ten rounds one behind the other. `round` gives whether it has run. What a thread makes once, in
/// whichever of its first rounds that is, does not count.
template <class Round>
void expect_allocates_nothing(const Round& round) {
  std::int64_t allocations = -1;
  for (int attempt = 0; attempt < 3 && allocations != 0; ++attempt) {
    ASSERT_TRUE(round());
    const std::int64_t before = test::num_allocations();
    bool ok = true;
    for (int i = 0; i < 10; ++i) ok = round() && ok;
    allocations = test::num_allocations() - before;
    EXPECT_TRUE(ok);
  }
  EXPECT_EQ(allocations, 0);
}

TEST(GemmRepeatPath, OfEveryKindAllocatesNothing) {
  const auto device = open_device({DeviceKind::kCpu, 0}, Config{}).value();
  const auto stream = device->create_stream().value();
  const Tensor a = Tensor::host({32, 16}, DType::kBF16);
  const Tensor b = Tensor::host({16, 8}, DType::kBF16);
  const Tensor out = Tensor::host({32, 8}, DType::kBF16);
  const Tensor bias = Tensor::host({8}, DType::kBF16);
  const Tensor scale = Tensor::host({32, 1}, DType::kF32);
  const Tensor signals = Tensor::host({4}, DType::kU32);
  const Arrival arrival{.signals = signals.view(), .expected = 0};
  const ProductArgs plain{.a = &a.view(), .b = &b.view(), .out = &out.view(), .bias = &bias.view()};
  ProductArgs scaled = plain;
  scaled.a_scale = &scale.view();
  ProductArgs arriving = plain;
  arriving.arrival = &arrival;
  const std::array<const ProductArgs*, 3> calls = {&plain, &scaled, &arriving};
  const auto round = [&] {
    bool ok = true;
    for (const ProductArgs* const args : calls) {
      ok = ok && prepare(*args, *stream).has_value() && run(*args, *stream).has_value();
    }
    return ok && stream->synchronize().has_value();
  };
  expect_allocates_nothing(round);
}

TEST(GemmRepeatPath, OfAnAsyncInputAllocatesNothing) {
  const auto device = open_device({DeviceKind::kCpu, 0}, Config{}).value();
  const auto stream = device->create_stream().value();
  const Tensor a = Tensor::host({32, 16}, DType::kBF16);
  const Tensor b = Tensor::host({16, 8}, DType::kBF16);
  const Tensor out = Tensor::host({32, 8}, DType::kBF16);
  const Tensor signals = Tensor::host({4}, DType::kU32);
  const auto round = [&] {
    const AsyncInputMmArgs args{
        .a = a.view(), .b = b.view(), .out = out.view(), .a_chunk_signals = signals.view(), .expected = 0};
    return async_input_mm(args, *stream).has_value() && stream->synchronize().has_value();
  };
  expect_allocates_nothing(round);
}

TEST(GemmRepeatPath, OfAQuantisationAllocatesNothing) {
  const auto device = open_device({DeviceKind::kCpu, 0}, Config{}).value();
  const auto stream = device->create_stream().value();
  const Tensor input = Tensor::host({4, 3, 260}, DType::kBF16);
  const Tensor out = Tensor::host({4, 3, 260}, DType::kF8E4M3);
  const Tensor scale = Tensor::host({4, 3, 3}, DType::kF32);
  expect_allocates_nothing([&] {
    return quantize_rows({.input = input.view(), .out = out.view(), .scale = scale.view()}, *stream)
               .has_value() &&
           stream->synchronize().has_value();
  });
}

}  // namespace
}  // namespace tandem::gemm
