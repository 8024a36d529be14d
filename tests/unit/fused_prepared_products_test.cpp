#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "conformance/fused_harness.hpp"
#include "gemm/backend.hpp"
#include "symm/chunk_words.hpp"

// Every product that a fused op enqueues has been prepared: like it in all that gemm::prepare() looks at, on
// the same stream, before anything of the op was enqueued. On a GPU what is missing would be made while peers
// wait, and a recording of the op would fail.

namespace tandem {
namespace {

using test::Complaints;
using test::Guarded;
using test::RankContextOfTest;

/// Strides where they count, and the alignment of the address: worked out here, since calls are told apart by
/// alignment_of().
std::string look_of(const TensorView& view) {
  constexpr std::uintptr_t kMost = 128;
  const auto address = reinterpret_cast<std::uintptr_t>(view.data) | kMost;
  std::string text = fmt::format(" @{}", address & (~address + 1));
  for (int d = 0; d < view.dim(); ++d) text += fmt::format(" {}", view.size(d) == 1 ? 0 : view.stride(d));
  return text;
}

/// Multiplies nothing, and complains about products that nobody has prepared.
class StrictProduct final : public gemm::Implementation {
 public:
  explicit StrictProduct(Complaints& complaints) : complaints_(complaints) {}
  std::string_view name() const override { return "strict"; }
  bool accepts(const gemm::Product& product, std::string* /*why_not*/) const override {
    return !product.arrival.has_value();
  }
  Result<void> run(const gemm::Product& product, const gemm::ProductArgs& args,
                   Stream& stream) const override {
    ++num_run_;
    const std::string like = text_of(product, args, stream);
    if (!prepared_.contains(like)) complaints_.add("not prepared:" + like);
    return args.telling == nullptr ? Result<void>() : tell(*args.telling, stream);
  }
  Result<void> prepare(const gemm::Product& product, const gemm::ProductArgs& like,
                       Stream& stream) const override {
    prepared_.insert(text_of(product, like, stream));
    return {};
  }
  int num_run() const { return num_run_; }

 private:
  /// The others wait for it.
  static Result<void> tell(const gemm::Telling& telling, Stream& stream) {
    for (int owner = 0; owner < telling.handle->world_size(); ++owner) {
      if (owner == telling.handle->rank()) continue;
      const auto word = telling.handle->get_buffer(owner, {1}, DType::kU32, telling.word_bytes / 4);
      if (!word) return tl::unexpected(word.error());
      const auto told = symm::write_word(*telling.handle, owner, *word, 0, telling.value, stream);
      if (!told) return told;
    }
    return {};
  }
  static std::string text_of(const gemm::Product& product, const gemm::ProductArgs& args,
                             const Stream& stream) {
    const auto scale = [](const TensorView* view) { return view == nullptr ? " none" : look_of(*view); };
    return fmt::format("{}; a{}; b{}; out{}; scales{},{}; on {}", to_string(product), look_of(*args.a),
                       look_of(*args.b), look_of(*args.out), scale(args.a_scale), scale(args.b_scale),
                       static_cast<const void*>(&stream));
  }

  Complaints& complaints_;
  // Of one rank's thread.
  mutable std::set<std::string> prepared_;
  mutable int num_run_ = 0;
};

class StrictProducts final : public gemm::Backend {
 public:
  explicit StrictProducts(Complaints& complaints) : product_(complaints), all_{&product_} {}
  std::span<const gemm::Implementation* const> implementations() const override { return all_; }
  const StrictProduct& product() const { return product_; }

 private:
  StrictProduct product_;
  std::array<const gemm::Implementation*, 1> all_;
};

struct Case {
  bool gathers = true;
  int dim = 0;
  DType dtype = DType::kBF16;  ///< f8: the scaled op
  Algorithm algorithm = Algorithm::kPipelined;
  int num_b = 1;
};

/// A view of `memory` as [rows, cols], `skipped` elements behind its start.
TensorView matrix_in(const Guarded& memory, std::int64_t rows, std::int64_t cols, std::int64_t skipped) {
  const TensorView part = memory.view().narrow(0, skipped, rows * cols);
  return TensorView::contiguous(part.data, {rows, cols}, part.dtype, part.device);
}

/// The op on tensors that begin `skipped` elements behind aligned ones, with b by rows or by columns.
class Call {
 public:
  Call(const Case& c, RankContextOfTest& rank)
      : case_(c),
        rank_(rank),
        a_(rank.device, Dims{kRoom}, c.dtype),
        b_(rank.device, Dims{kRoom}, c.dtype),
        out_(rank.device, Dims{kRoom}, is_scaled() ? DType::kBF16 : c.dtype),
        scales_(rank.device, Dims{kRoom}, DType::kF32) {}

  Result<void> run(std::int64_t skipped, bool by_columns) {
    std::vector<TensorView> bs;
    for (int i = 0; i < case_.num_b; ++i) {
      const std::int64_t place = skipped + i * kK * kN;
      bs.push_back(by_columns ? matrix_in(b_, kN, kK, place).movedim(0, 1) : matrix_in(b_, kK, kN, place));
    }
    const auto done = is_scaled()     ? run_scaled(skipped, bs)
                      : case_.gathers ? gather(skipped, bs)
                                      : scatter(skipped, bs);
    const auto waited = rank_.stream.synchronize();
    return done ? waited : tl::unexpected(done.error());
  }

 private:
  static constexpr std::int64_t kM = 13;
  static constexpr std::int64_t kK = 9;
  static constexpr std::int64_t kN = 11;
  static constexpr std::int64_t kRoom = 400;

  std::int64_t mine(std::int64_t total) const {
    return shard_of(total, rank_.group.size(), rank_.group.rank()).size;
  }
  Result<OpReport> gather(std::int64_t skipped, const std::vector<TensorView>& bs) {
    const bool by_rows = case_.dim == 0;
    std::vector<TensorView> outs;
    for (int i = 0; i < case_.num_b; ++i) outs.push_back(matrix_in(out_, kM, kN, skipped + i * kM * kN));
    return fused_all_gather_matmul(
        {.a = matrix_in(a_, by_rows ? mine(kM) : kM, by_rows ? kK : mine(kK), skipped),
         .b = bs,
         .gather_dim = case_.dim,
         .gather_size = by_rows ? kM : kK,
         .out = outs,
         .algorithm = case_.algorithm},
        rank_.group, rank_.stream);
  }
  Result<OpReport> scatter(std::int64_t skipped, const std::vector<TensorView>& bs) {
    const bool by_rows = case_.dim == 0;
    std::vector<TensorView> as;
    for (int i = 0; i < case_.num_b; ++i) as.push_back(matrix_in(a_, kM, kK, skipped + i * kM * kK));
    return fused_matmul_reduce_scatter(
        {.a = as,
         .b = bs,
         .scatter_dim = case_.dim,
         .out = matrix_in(out_, by_rows ? mine(kM) : kM, by_rows ? kN : mine(kN), skipped),
         .algorithm = case_.algorithm},
        rank_.group, rank_.stream);
  }

  [[nodiscard]] bool is_scaled() const { return size_bytes(case_.dtype) == 1; }
  /// With scales of rows and of columns.
  Result<OpReport> run_scaled(std::int64_t skipped, const std::vector<TensorView>& bs) {
    const bool by_rows = case_.dim == 0;
    const TensorView b_scale = matrix_in(scales_, 1, kN, skipped);
    if (case_.gathers) {
      const std::int64_t rows = by_rows ? mine(kM) : kM;
      const std::vector gather_b_scales(bs.size(), b_scale);
      std::vector<TensorView> outs;
      for (int i = 0; i < case_.num_b; ++i) outs.push_back(matrix_in(out_, kM, kN, skipped + i * kM * kN));
      return fused_all_gather_scaled_matmul({.a = matrix_in(a_, rows, by_rows ? kK : mine(kK), skipped),
                                             .b = bs,
                                             .a_scale = matrix_in(scales_, rows, 1, skipped),
                                             .scale_mode = ScaleMode::kRowwiseSharded,
                                             .b_scale = gather_b_scales,
                                             .gather_dim = case_.dim,
                                             .gather_size = by_rows ? kM : kK,
                                             .out = outs,
                                             .algorithm = case_.algorithm},
                                            rank_.group, rank_.stream);
    }
    const std::vector<std::optional<TensorView>> a_scales(bs.size(), matrix_in(scales_, kM, 1, skipped));
    const std::vector<std::optional<TensorView>> b_scales(bs.size(), b_scale);
    std::vector<TensorView> as;
    for (int i = 0; i < case_.num_b; ++i) as.push_back(matrix_in(a_, kM, kK, skipped + i * kM * kK));
    return fused_scaled_matmul_reduce_scatter(
        {.a = as,
         .b = bs,
         .a_scale = a_scales,
         .b_scale = b_scales,
         .scatter_dim = case_.dim,
         .out = matrix_in(out_, by_rows ? mine(kM) : kM, by_rows ? kN : mine(kN), skipped),
         .algorithm = case_.algorithm},
        rank_.group, rank_.stream);
  }

  Case case_;
  RankContextOfTest& rank_;
  Guarded a_, b_, out_, scales_;
};

class FusedPreparedProducts
    : public ::testing::TestWithParam<std::tuple<int, bool, int, DType, Algorithm, int>> {};

// The same problem for the group every time, with other products.
TEST_P(FusedPreparedProducts, AreAllThatAreEnqueued) {
  const auto [ranks, gathers, dim, dtype, algorithm, num_b] = GetParam();
  const Case c{gathers, dim, dtype, algorithm, num_b};
  Complaints complaints;
  on_ranks({.ranks = {{DeviceKind::kCpu}, ranks}}, test::quick_config(), complaints,
           [&](RankContextOfTest& rank) -> Result<void> {
             const auto strict = std::make_shared<StrictProducts>(complaints);
             rank.device.attach<gemm::Backend>(strict);
             Call call(c, rank);
             for (const bool by_columns : {false, true}) {
               for (const std::int64_t skipped : {0, 1, 8, 0}) {
                 if (auto ran = call.run(skipped, by_columns); !ran) return ran;
               }
             }
             if (strict->product().num_run() == 0) complaints.add("nothing was multiplied");
             return {};
           });
  EXPECT_EQ(complaints.text(), "");
}

std::string name_of(const ::testing::TestParamInfo<FusedPreparedProducts::ParamType>& info) {
  const auto [ranks, gathers, dim, dtype, algorithm, num_b] = info.param;
  return fmt::format("{}_{}_dim_{}_{}_{}_b_{}", gathers ? "gather" : "scatter", to_string(algorithm), dim,
                     to_string(dtype), num_b, ranks);
}

INSTANTIATE_TEST_SUITE_P(Jobs, FusedPreparedProducts,
                         ::testing::Combine(::testing::Values(1, 2, 3, 4), ::testing::Bool(),
                                            ::testing::Values(0, 1),
                                            ::testing::Values(DType::kBF16, DType::kF32, DType::kF8E4M3),
                                            ::testing::Values(Algorithm::kSerial, Algorithm::kPipelined),
                                            ::testing::Values(1, 2)),
                         name_of);

}  // namespace
}  // namespace tandem
