// The one entry behind mm(), scaled_matmul() and async_input_mm(): what it makes of operands of every kind,
// and what no public call shows, the exchange of pieces.
#include "gemm/product.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <tandem/backend/backend.hpp>
#include <tandem/base/numeric.hpp>
#include <vector>

#include "gemm/backend.hpp"
#include "support/guarded_bytes.hpp"
#include "support/symm_rank.hpp"

namespace tandem::testing {
namespace {

using gemm::Arrival;
using gemm::Chunks;
using gemm::CompleteChunks;
using gemm::PieceExchange;
using gemm::Product;
using gemm::ProductArgs;

/// Small whole numbers, whose products are exact in every type.
Tensor numbers(const Dims& sizes, DType dtype, int start) {
  Tensor tensor = Tensor::host(sizes, dtype);
  for (std::int64_t i = 0; i < tensor.view().numel(); ++i) {
    const auto value = static_cast<float>((i * 5 + start) % 7 - 3);
    if (dtype == DType::kF32) tensor.view().data_as<float>()[i] = value;
    if (dtype == DType::kBF16) tensor.view().data_as<BF16>()[i] = to_bf16(value);
  }
  return tensor;
}

std::string bytes_of(const Tensor& tensor) {
  return {tensor.view().data_as<const char>(), static_cast<std::size_t>(tensor.view().size_bytes())};
}

/// An arriving product's operands, to be changed one at a time.
struct ArrivingArgs {
  TensorView a;
  TensorView b;
  TensorView out;
  TensorView a_chunk_signals;
  std::optional<CompleteChunks> complete = {};
  std::optional<gemm::ChunkSenders> senders = {};
  std::optional<PieceExchange> pieces = {};
};
struct Change {
  std::function<void(ArrivingArgs&)> make;
  std::string text;
};

class GemmProduct : public ::testing::Test {
 protected:
  void expect_refused(const std::vector<Change>& changes) {
    for (const Change& change : changes) {
      ArrivingArgs args{.a = memory_.view({8, 3}, DType::kBF16),
                        .b = memory_.view({3, 5}, DType::kBF16),
                        .out = out_.view({8, 5}, DType::kBF16),
                        .a_chunk_signals = memory_.view({4}, DType::kU32)};
      change.make(args);
      const Arrival arrival{.signals = args.a_chunk_signals,
                            .complete = args.complete,
                            .senders = args.senders,
                            .pieces = args.pieces};
      const auto result =
          gemm::run({.a = &args.a, .b = &args.b, .out = &args.out, .arrival = &arrival}, *stream_);
      ASSERT_FALSE(result) << change.text;
      EXPECT_EQ(result.error().code(), ErrorCode::kInvalidArgument) << result.error().to_string();
      EXPECT_NE(result.error().text().find(change.text), std::string::npos)
          << change.text << " is not in " << result.error().text();
      ASSERT_TRUE(stream_->synchronize());
      EXPECT_TRUE(out_.is_untouched());
    }
  }

  /// The bytes of out, which begins as `before`.
  std::string run(ProductArgs args, const Tensor& before) {
    Tensor out = Tensor::host(before.view().sizes, before.view().dtype);
    std::memcpy(out.view().data, before.view().data, static_cast<std::size_t>(before.view().size_bytes()));
    args.out = &out.view();
    expect_ok(gemm::run(args, *stream_));
    expect_ok(stream_->synchronize());
    return bytes_of(out);
  }

  GuardedBytes memory_{1024};
  GuardedBytes out_{1024};
  std::unique_ptr<Device> device_ = open_device({DeviceKind::kCpu, 0}, Config{}).value();
  std::unique_ptr<Stream> stream_ = device_->create_stream().value();
};

TEST_F(GemmProduct, EveryKindIsWhatItsPublicCallMakes) {
  const Tensor a = numbers({12, 16}, DType::kBF16, 0);
  const Tensor b = numbers({16, 8}, DType::kBF16, 3);
  const Tensor bias = numbers({8}, DType::kF32, 1);
  const Tensor a_scale = numbers({12, 1}, DType::kF32, 2);
  const Tensor addend = numbers({12, 8}, DType::kF32, 4);
  const Tensor out = numbers({12, 8}, DType::kF32, 5);
  const Tensor signals = Tensor::host({3}, DType::kU32);
  const std::string before = bytes_of(out);
  const ProductArgs plain{.a = &a.view(), .b = &b.view()};
  ProductArgs with_bias = plain;
  with_bias.bias = &bias.view();
  with_bias.accumulate = true;
  ProductArgs scaled = plain;
  scaled.a_scale = &a_scale.view();
  scaled.bias = &bias.view();
  scaled.addend = &addend.view();
  const Arrival arrival{.signals = signals.view(), .pivot = 1, .expected = 0};
  ProductArgs arriving = plain;
  arriving.arrival = &arrival;
  const std::array entry = {run(with_bias, out), run(scaled, out), run(arriving, out)};

  const auto public_call = [&](auto enqueue) {
    std::memcpy(out.view().data, before.data(), before.size());
    expect_ok(enqueue());
    expect_ok(stream_->synchronize());
    return bytes_of(out);
  };
  EXPECT_EQ(entry[0], public_call([&] {
              return gemm::mm(
                  {.a = a.view(), .b = b.view(), .out = out.view(), .bias = bias.view(), .accumulate = true},
                  *stream_);
            }));
  EXPECT_EQ(entry[1], public_call([&] {
              return gemm::scaled_matmul({.a = a.view(),
                                          .b = b.view(),
                                          .a_scale = a_scale.view(),
                                          .out = out.view(),
                                          .bias = bias.view(),
                                          .addend = addend.view()},
                                         *stream_);
            }));
  EXPECT_EQ(entry[2], public_call([&] {
              return gemm::async_input_mm({.a = a.view(),
                                           .b = b.view(),
                                           .out = out.view(),
                                           .a_chunk_signals = signals.view(),
                                           .a_chunk_pivot = 1,
                                           .expected = 0},
                                          *stream_);
            }));
}

TEST_F(GemmProduct, ThatArrivesTakesABiasAndAddsToOutOnCpus) {
  const Tensor a = numbers({12, 16}, DType::kBF16, 0);
  const Tensor b = numbers({16, 8}, DType::kBF16, 3);
  const Tensor bias = numbers({8}, DType::kF32, 1);
  const Tensor out = numbers({12, 8}, DType::kF32, 5);
  const Tensor signals = Tensor::host({5}, DType::kU32);
  const Arrival arrival{.signals = signals.view(), .pivot = 3, .expected = 0};
  ProductArgs args{.a = &a.view(), .b = &b.view(), .bias = &bias.view(), .accumulate = true};
  const std::string there = run(args, out);
  args.arrival = &arrival;
  EXPECT_EQ(run(args, out), there);
}

// Three dims go through the scaled product, two through the plain one.
TEST_F(GemmProduct, WithoutScalesHasTheSameBitsInAnyNumberOfDims) {
  const Tensor a = numbers({60, 1500}, DType::kBF16, 0);
  const Tensor b = numbers({1500, 70}, DType::kBF16, 3);
  const Tensor bias = numbers({70}, DType::kBF16, 1);
  const Tensor out = Tensor::host({60, 70}, DType::kBF16);
  const Tensor out_of_three = Tensor::host({3, 20, 70}, DType::kBF16);
  const TensorView a_of_three = TensorView::contiguous(a.view().data, {3, 20, 1500}, DType::kBF16);
  EXPECT_EQ(run({.a = &a_of_three, .b = &b.view(), .bias = &bias.view()}, out_of_three),
            run({.a = &a.view(), .b = &b.view(), .bias = &bias.view()}, out));
  // Also of another type, which mm() does not make.
  const Tensor other = Tensor::host({60, 70}, DType::kF16);
  const Tensor other_of_three = Tensor::host({3, 20, 70}, DType::kF16);
  EXPECT_EQ(run({.a = &a_of_three, .b = &b.view()}, other_of_three),
            run({.a = &a.view(), .b = &b.view()}, other));
}

TEST_F(GemmProduct, ThatIsScaledDoesNotAccumulate) {
  const Tensor all = numbers({8, 8}, DType::kF32, 0);
  const Tensor out = Tensor::host({8, 8}, DType::kF32);
  const Tensor scale = numbers({1}, DType::kF32, 4);
  const auto refused = gemm::run(
      {.a = &all.view(), .b = &all.view(), .out = &out.view(), .b_scale = &scale.view(), .accumulate = true},
      *stream_);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().text(), "scaled_matmul: only plain products accumulate, others take an addend");
}

TEST_F(GemmProduct, OnCpusSaysWhyNot) {
  const auto why_not = [&](const Product& product) {
    const Support support = gemm::can_run(product, *device_);
    EXPECT_FALSE(support.ok);
    return support.why_not;
  };
  const Product arriving{.m = 256,
                         .n = 8,
                         .k = 64,
                         .a = DType::kBF16,
                         .b = DType::kBF16,
                         .out = DType::kBF16,
                         .arrival = Chunks{.count = 2}};
  EXPECT_TRUE(gemm::can_run(arriving, *device_));
  Product sending = arriving;
  sending.arrival->in_pieces = 1;
  EXPECT_NE(why_not(sending).find("cpu/tile_scalar: products on CPUs send nothing"), std::string::npos);
  EXPECT_NE(why_not(sending).find("async_input_mm 256x8x64 in 2 chunks"), 0U) << "the reason alone";
  Product scaled = arriving;
  scaled.b_scale = gemm::Scale::kColumn;
  EXPECT_NE(why_not(scaled).find("has no scaled products whose left operand still arrives"),
            std::string::npos);
  Product second = arriving;
  second.heuristic = 1;
  EXPECT_NE(why_not(second).find("has no choice but one"), std::string::npos);
}

/// Notes what it is asked to do.
class NotedProduct final : public gemm::Implementation {
 public:
  using Accepts = bool (*)(const Product& product, std::string* why_not);
  NotedProduct(std::string_view name, Accepts takes) : name_(name), takes_(takes) {}
  std::string_view name() const override { return name_; }
  bool accepts(const Product& product, std::string* why_not) const override {
    return takes_(product, why_not);
  }
  Result<void> prepare(const Product& product, const ProductArgs&, Stream&) const override {
    prepared.push_back(to_string(product));
    return {};
  }
  Result<void> run(const Product& product, const ProductArgs&, Stream&) const override {
    run_products.push_back(to_string(product));
    return {};
  }
  std::optional<double> predicted_us(const Product& product, const cost::GpuRates& /*gpu*/) const override {
    return 0.5 * product.m;
  }

  mutable std::vector<std::string> prepared;
  mutable std::vector<std::string> run_products;

 private:
  std::string_view name_;
  Accepts takes_;
};
class NotedProducts final : public gemm::Backend {
 public:
  std::span<const gemm::Implementation* const> implementations() const override { return list_; }
  explicit NotedProducts(NotedProduct::Accepts takes) : second("second", takes) {}
  NotedProduct first{
      "first", [](const Product&, std::string* why_not) { return gemm::refuse(why_not, "it never does"); }};
  NotedProduct second;

 private:
  std::array<const gemm::Implementation*, 2> list_ = {&first, &second};
};

bool takes_all(const Product&, std::string*) {
  return true;
}

TEST_F(GemmProduct, GoesToTheFirstThatAcceptsAndIsPreparedWithoutMemory) {
  const auto noted = std::make_shared<NotedProducts>(takes_all);
  device_->attach<gemm::Backend>(noted);
  const auto nowhere = [](const Dims& sizes, DType dtype) {
    return TensorView::contiguous(nullptr, sizes, dtype);
  };
  const TensorView a = nowhere({4, 8}, DType::kBF16);
  const TensorView b = nowhere({8, 2}, DType::kBF16);
  const TensorView out = nowhere({4, 2}, DType::kBF16);
  const TensorView narrow_a = nowhere({2, 2, 8}, DType::kF8E4M3);
  const TensorView narrow_b = nowhere({8, 2}, DType::kF8E5M2);
  const TensorView wide_out = nowhere({2, 2, 2}, DType::kF32);
  const TensorView scale = nowhere({}, DType::kF32);
  const Arrival arrival{.signals = nowhere({2}, DType::kU32)};
  expect_ok(gemm::prepare({.a = &a, .b = &b, .out = &out}, *stream_));
  expect_ok(gemm::prepare({.a = &narrow_a, .b = &narrow_b, .out = &wide_out, .a_scale = &scale}, *stream_));
  expect_ok(gemm::prepare({.a = &a, .b = &b, .out = &out, .arrival = &arrival}, *stream_));
  const std::vector<std::string> all = {"mm 4x2x8 bf16 -> bf16", "scaled_mm 4x2x8 f8e4m3 * f8e5m2 -> f32",
                                        "async_input_mm 4x2x8 in 2 chunks bf16 -> bf16"};
  EXPECT_EQ(noted->second.prepared, all);
  EXPECT_TRUE(noted->first.prepared.empty());
  EXPECT_TRUE(noted->second.run_products.empty());
  EXPECT_EQ(gemm::predicted_us(Product{.m = 6}, *device_), 3);
}

bool takes_plain(const Product& product, std::string* why_not) {
  return product.is_plain() || gemm::refuse(why_not, "is for mm");
}

TEST_F(GemmProduct, WithoutScalesRunsWhereverMmDoes) {
  const auto noted = std::make_shared<NotedProducts>(takes_plain);
  device_->attach<gemm::Backend>(noted);
  const Tensor all = Tensor::host({8, 8}, DType::kBF16);
  const Tensor out = Tensor::host({8, 8}, DType::kBF16);
  const Tensor scale = Tensor::host({1}, DType::kF32);
  gemm::ScaledMmArgs args{.a = all.view(), .b = all.view(), .out = out.view()};
  expect_ok(gemm::scaled_matmul(args, *stream_));
  EXPECT_EQ(noted->second.run_products, std::vector<std::string>{"mm 8x8x8 bf16 -> bf16"});
  args.b_scale = scale.view();
  const auto refused = gemm::scaled_matmul(args, *stream_);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), ErrorCode::kUnsupported);
  EXPECT_EQ(refused.error().text(),
            "scaled_mm 8x8x8 bf16 * bf16 -> bf16 cannot run on cpu:0: first: it never does; second: is for "
            "mm");
  const Support support = gemm::can_run(gemm::ScaledProblem{.m = 8, .n = 8, .k = 8}, *device_);
  EXPECT_EQ(support.why_not, "first: it never does; second: is for mm");
}

TEST_F(GemmProduct, ThatIsEmptyEnqueuesNothing) {
  const auto noted = std::make_shared<NotedProducts>(takes_all);
  device_->attach<gemm::Backend>(noted);
  const Tensor a = Tensor::host({4, 8}, DType::kF32);
  const Tensor b = Tensor::host({8, 0}, DType::kF32);
  const Tensor out = Tensor::host({4, 0}, DType::kF32);
  expect_ok(gemm::run({.a = &a.view(), .b = &b.view(), .out = &out.view()}, *stream_));
  EXPECT_TRUE(noted->second.run_products.empty());
}

TEST_F(GemmProduct, PiecesThatDoNotFit) {
  const auto complete = [&] { return CompleteChunks{memory_.view({4, 3}, DType::kBF16), 0, 2}; };
  const auto with_pieces = [&](auto& args, const PieceExchange& pieces) {
    args.complete = complete();
    args.pieces = pieces;
  };
  expect_refused({
      {[&](auto& args) { args.pieces = PieceExchange{}; },
       "pieces need complete and senders, and both are missing"},
      {[&](auto& args) { with_pieces(args, {}); },
       "pieces need complete and senders, and senders are missing"},
  });
  expect_ok(run_symm_ranks(2, {}, [&](SymmRank& rank) -> Result<void> {
    const Tensor block = rank.empty({4096});
    const auto handle = rank.meet(block);
    if (rank.group.rank() != 0) return {};
    stream_ = rank.device->create_stream().value();
    const auto from_peers = [&](auto& args, const PieceExchange& pieces) {
      with_pieces(args, pieces);
      args.senders = {handle.get(), 2};
    };
    expect_refused({
        {[&](auto& args) {
           args.senders = {handle.get(), 2};
           args.pieces = PieceExchange{};
         },
         "pieces need complete and senders, and complete is missing"},
        {[&](auto& args) {
           from_peers(args, {.peers = 1});
           args.complete = CompleteChunks{memory_.view({2, 3}, DType::kBF16), 0, 1};
         },
         "complete has chunks [0, 1) of 4: pieces need rank 0's whole shard, [0, 2) of 4"},
        {[&](auto& args) { from_peers(args, {}); }, "pieces.peers is 0, need 1 to 1"},
        {[&](auto& args) { from_peers(args, {.peers = 2}); }, "pieces.peers is 2, need 1 to 1"},
        {[&](auto& args) { from_peers(args, {.peers = 1}); },
         "behind the start of the senders' block, and pieces.rows_bytes is 0"},
        {[&](auto& args) {
           from_peers(args, {.peers = 1, .rows_bytes = 8});
           args.a.data = static_cast<std::byte*>(handle->buffer_ptrs()[0]) + 8;
         },
         "pieces.rows_bytes is 8 and they end at 56"},
        {[&](auto& args) {
           from_peers(args, {.peers = 1, .flags_bytes = -16});
           args.a.data = handle->buffer_ptrs()[0];
         },
         "flags_bytes -16"},
        {[&](auto& args) {
           from_peers(args, {.peers = 1, .flags_bytes = 1 << 30});
           args.a.data = handle->buffer_ptrs()[0];
         },
         "flags_bytes 1073741824"},
    });
    stream_.reset();
    return {};
  }));
}

TEST_F(GemmProduct, FlagsThatOverlap) {
  expect_ok(run_symm_ranks(2, {}, [&](SymmRank& rank) -> Result<void> {
    const Tensor block = rank.empty({4096});
    const auto handle = rank.meet(block);
    if (rank.group.rank() != 0) return {};
    stream_ = rank.device->create_stream().value();
    // Two pieces, whose flags are two of four words; a lies at the start of the block, the other operands
    // behind it.
    const auto at = [&](std::int64_t num_bytes, const Dims& sizes) {
      return TensorView::contiguous(static_cast<std::byte*>(handle->buffer_ptrs()[0]) + num_bytes, sizes,
                                    DType::kBF16);
    };
    const auto with_flags_at = [&](auto& args, std::int64_t num_bytes) {
      args.a = at(0, {32, 64});
      args.b = at(4096, {64, 5});
      args.out = at(5120, {32, 5});
      args.complete = CompleteChunks{at(6144, {16, 64}), 0, 2};
      args.senders = {handle.get(), 2};
      args.pieces = PieceExchange{.peers = 1, .flags_bytes = num_bytes};
    };
    expect_refused({
        {[&](auto& args) { with_flags_at(args, 4080); }, "is written and overlaps a (4096 bytes at"},
        {[&](auto& args) { with_flags_at(args, 4096); }, "is written and overlaps b (640 bytes at"},
        {[&](auto& args) { with_flags_at(args, 5120); }, "is written and overlaps out (320 bytes at"},
        {[&](auto& args) { with_flags_at(args, 6144); }, "overlaps complete.rows (2048 bytes at"},
        {[&](auto& args) {
           with_flags_at(args, 8192);
           args.a_chunk_signals = TensorView::contiguous(at(8196, {1}).data, {4}, DType::kU32);
         },
         "pieces' flags (16 bytes at"},
    });
    stream_.reset();
    return {};
  }));
}

}  // namespace
}  // namespace tandem::testing
