// f8 products by the native kernels of a GPU, scaled as a whole, by rows and columns, or along k: all of a in
// place, or in chunks that arrive with their scales, in any order. Against float64; and the bits of chunks
// are those of the whole.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <string>

#include "base/format.hpp"
#include "conformance/gemm_chunked_product.hpp"
#include "gemm/product.hpp"

namespace tandem {
namespace {

using gemm::Scale;
using test::Guarded;

constexpr std::int64_t kBlock = gemm::kScaleBlock;

std::int64_t blocks_of(std::int64_t size) {
  return (size + kBlock - 1) / kBlock;
}

struct Case {
  std::int64_t m = 256;
  std::int64_t n = 264;
  std::int64_t k = 272;
  Scale a_scale = Scale::kRow;
  Scale b_scale = Scale::kColumn;
  bool fast = false;
  std::optional<DType> bias = {};
  bool result_scale = false;
  int chunks = 1;
  int pivot = 0;
  int complete_first = 0;
  int complete_count = 0;
  bool scales_arrive = false;  ///< with their chunks
};

std::string to_text(const Case& c) {
  return fmt::format("{}x{}x{} scaled {} * {}{}{}{} in {} chunks from {}, [{}, {}) complete{}", c.m, c.n, c.k,
                     gemm::to_string(c.a_scale), gemm::to_string(c.b_scale), c.fast ? " fast" : "",
                     c.bias ? fmt::format(" + bias {}", to_string(*c.bias)) : "",
                     c.result_scale ? " * result" : "", c.chunks, c.pivot, c.complete_first,
                     c.complete_first + c.complete_count, c.scales_arrive ? ", scales arrive" : "");
}

Dims sizes_of_a_scale(const Case& c) {
  if (c.a_scale == Scale::kTensor) return {1};
  return {c.m, c.a_scale == Scale::kRow ? 1 : blocks_of(c.k)};
}

Dims sizes_of_b_scale(const Case& c) {
  if (c.b_scale == Scale::kTensor) return {1};
  return c.b_scale == Scale::kColumn ? Dims{1, c.n} : Dims{blocks_of(c.k), blocks_of(c.n)};
}

class GemmNativeScaled : public test::ChunkedProductTest {
 protected:
  void SetUp() override {
    if (testing::num_test_gpus() == 0) GTEST_SKIP() << "needs a GPU";
    open(DeviceKind::kCuda, Config{});
  }
  Result<void> multiply_whole(const test::ChunkedOperands&) override { return {}; }

  void check(const Case& c) {
    SCOPED_TRACE(to_text(c));
    tensors_.clear();
    const Guarded& source = add(test::dense({c.m, c.k}), DType::kF8E4M3);
    const Guarded& b = add({{c.k, c.n}, {1, c.k}}, DType::kF8E4M3);
    const Guarded& scales = add_scale(sizes_of_a_scale(c));
    const Guarded& b_scale = add_scale(sizes_of_b_scale(c));
    const TensorView a_scale_view = scales.view();
    gemm::ProductArgs args{.b = keep(b.view()),
                           .a_scale = keep(a_scale_view),
                           .b_scale = keep(b_scale.view()),
                           .fast_accum = c.fast};
    if (c.bias) args.bias = keep(add(test::dense({c.n}), *c.bias).view());
    if (c.result_scale) args.result_scale = keep(add_scale({1}).view());
    const Guarded& out = tensors_.emplace_back(*device_, Dims{c.m, c.n}, DType::kBF16);
    args.out = keep(out.view());
    run_in_chunks(c, source, scales, args);
    if (HasFatalFailure()) return;
    for (const Guarded& one : tensors_) {
      one.download();
      ASSERT_TRUE(one.guards_are_whole());
    }
    compare(c, source, b, scales, b_scale, args, out);
  }

 private:
  Guarded& add(const Layout& layout, DType dtype) {
    return tensors_.emplace_back(*device_, layout,
                                 test::generated(layout.sizes, dtype, static_cast<int>(tensors_.size())));
  }
  Guarded& add_scale(const Dims& sizes) {
    return tensors_.emplace_back(*device_, test::dense(sizes),
                                 test::generated_scale(sizes, static_cast<int>(tensors_.size())));
  }
  const TensorView* keep(const TensorView& view) { return &views_.emplace_back(view); }

  /// a and, where they arrive, its scales come by another stream.
  void run_in_chunks(const Case& c, const Guarded& source, const Guarded& scales, gemm::ProductArgs args) {
    if (c.chunks == 1 && c.complete_count == 0 && gemm::is_along_k(c.a_scale)) {
      args.a = keep(source.view());
      ASSERT_TRUE(gemm::run(args, *stream_));
      ASSERT_TRUE(stream_->synchronize());
      return;
    }
    const test::ChunkedProduct chunked{
        .m = c.m, .chunks = c.chunks, .complete_first = c.complete_first, .complete_count = c.complete_count};
    const Guarded& a = tensors_.emplace_back(*device_, Dims{c.m, c.k}, DType::kF8E4M3);
    const Guarded& signals = tensors_.emplace_back(*device_, Dims{c.chunks}, DType::kU32);
    const Guarded& arriving = tensors_.emplace_back(*device_, scales.view().sizes, DType::kF32);
    args.a = keep(a.view());
    gemm::Arrival arrival{.signals = signals.view(), .pivot = c.pivot, .in_order = false};
    if (c.complete_count > 0) {
      const Shard rows = chunked.rows_of(c.complete_first, c.complete_count);
      const TensorView there = source.host().narrow(0, rows.offset, rows.size);
      arrival.complete = {tensors_.emplace_back(*device_, test::dense(there.sizes), there).view(),
                          c.complete_first, c.complete_count};
      if (c.scales_arrive) {
        const TensorView own = scales.host().narrow(0, rows.offset, rows.size);
        arrival.complete_scale = tensors_.emplace_back(*device_, test::dense(own.sizes), own).view();
        args.a_scale = keep(arriving.view());
      }
    }
    args.arrival = &arrival;
    ASSERT_TRUE(stream_->memset32(signals.view(), 0, 0, c.chunks));
    ASSERT_TRUE(stream_->synchronize());
    const auto enqueued = gemm::run(args, *stream_);
    ASSERT_TRUE(enqueued) << enqueued.error().to_string();
    std::vector<int> order;
    for (int chunk = 0; chunk < c.chunks; ++chunk) {
      if (!chunked.is_complete(chunk)) order.push_back(chunk);
    }
    std::shuffle(order.begin(), order.end(), random_);
    for (const int chunk : order) {
      const Shard rows = chunked.rows_of(chunk, 1);
      const auto bring = [&](const Guarded& from, const Guarded& to) {
        ASSERT_TRUE(other_->copy(from.view().narrow(0, rows.offset, rows.size),
                                 to.view().narrow(0, rows.offset, rows.size)));
      };
      if (rows.size > 0) bring(source, a);
      if (rows.size > 0 && c.scales_arrive) bring(scales, arriving);
      ASSERT_TRUE(other_->stream_write_value32(signals.view(), chunk, 1));
    }
    const auto done = stream_->synchronize();
    ASSERT_TRUE(done) << done.error().to_string();
    ASSERT_TRUE(other_->synchronize());
  }

  void compare(const Case& c, const Guarded& a, const Guarded& b, const Guarded& a_scale,
               const Guarded& b_scale, const gemm::ProductArgs& args, const Guarded& out) {
    const auto scale_at = [](const Guarded& scale, std::int64_t row, std::int64_t column) {
      const Dims& sizes = scale.host().sizes;
      return scale.host().numel() == 1
                 ? scale.at(0)
                 : scale.at(std::min(row, sizes[0] - 1) * sizes[1] + std::min(column, sizes[1] - 1));
    };
    const auto given = [&](const TensorView* view) -> const Guarded* {
      for (const Guarded& one : tensors_) {
        if (view != nullptr && one.view().data == view->data) return &one;
      }
      return nullptr;
    };
    const Guarded* const bias = given(args.bias);
    const Guarded* const result = given(args.result_scale);
    const int samples = c.m * c.n == 0 ? 0 : 200;
    for (int i = 0; i < samples; ++i) {
      const auto row = static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(c.m));
      const auto column = static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(c.n));
      double sum = 0;
      double size = 0;
      for (std::int64_t k = 0; k < c.k; ++k) {
        const std::int64_t of_b = c.b_scale == Scale::kBlock128 ? column / kBlock : column;
        const double scale = scale_at(a_scale, row, k / kBlock) * scale_at(b_scale, k / kBlock, of_b);
        const double product = a.at(row * c.k + k) * b.at(k * c.n + column) * scale;
        sum += product;
        size += std::abs(product);
      }
      if (bias != nullptr) sum += bias->at(column);
      const double factor = result == nullptr ? 1 : result->at(0);
      // Tensor cores keep some 14 bits of an f8 sum.
      const double bound =
          std::abs(factor) * 0x1p-12 * size + harness::rounding_error(DType::kBF16, sum * factor);
      ASSERT_NEAR(out.at(row * c.n + column), sum * factor, bound) << row << ", " << column;
    }
  }

  std::deque<Guarded> tensors_;
  std::deque<TensorView> views_;
};

TEST_F(GemmNativeScaled, EveryScaleAndEpilogue) {
  for (const bool fast : {false, true}) {
    for (const Scale a : {Scale::kTensor, Scale::kRow}) {
      for (const Scale b : {Scale::kTensor, Scale::kColumn}) {
        check({.a_scale = a, .b_scale = b, .fast = fast, .complete_count = 1});
        check({.a_scale = a,
               .b_scale = b,
               .fast = fast,
               .bias = DType::kBF16,
               .result_scale = true,
               .complete_count = 1});
        check({.a_scale = a, .b_scale = b, .fast = fast, .bias = DType::kF32, .complete_count = 1});
      }
    }
  }
}

TEST_F(GemmNativeScaled, ScalesAlongK) {
  for (const std::int64_t m : {1, 128, 300}) {
    for (const std::int64_t k : {16, 128, 144, 400, 1024}) {
      for (const Scale b : {Scale::kBlock128, Scale::kTensor})
        check({.m = m, .n = 136, .k = k, .a_scale = Scale::kVector128, .b_scale = b});
      check({.m = m,
             .n = 392,
             .k = k,
             .a_scale = Scale::kRow,
             .b_scale = Scale::kBlock128,
             .complete_count = 1});
    }
  }
  check({.a_scale = Scale::kVector128,
         .b_scale = Scale::kBlock128,
         .bias = DType::kBF16,
         .result_scale = true});
}

TEST_F(GemmNativeScaled, ChunksWithTheirScales) {
  for (const Scale a : {Scale::kTensor, Scale::kRow, Scale::kVector128}) {
    const Scale b = a == Scale::kVector128 ? Scale::kBlock128 : Scale::kColumn;
    for (const bool fast : {false, true}) {
      for (const std::int64_t m : {40, 300, 512}) {
        for (const int chunks : {2, 3}) {
          for (int own = 0; own < chunks; ++own) {
            check({.m = m,
                   .n = 248,
                   .k = 272,
                   .a_scale = a,
                   .b_scale = b,
                   .fast = fast,
                   .chunks = chunks,
                   .pivot = own,
                   .complete_first = own,
                   .complete_count = 1,
                   .scales_arrive = a != Scale::kTensor});
            if (HasFatalFailure()) return;
          }
        }
      }
    }
  }
}

TEST_F(GemmNativeScaled, RowScalesThatAreThere) {
  for (const int chunks : {2, 4}) {
    for (int own = 0; own < chunks; ++own)
      check({.m = 600, .chunks = chunks, .pivot = own, .complete_first = own, .complete_count = 1});
  }
}

}  // namespace
}  // namespace tandem
