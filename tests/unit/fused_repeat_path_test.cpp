#include <gtest/gtest.h>

#include <array>
#include <barrier>
#include <optional>
#include <string>
#include <vector>

#include "conformance/fused_harness.hpp"
#include "support/allocation_count.hpp"

// Once warm, the ops allocate nothing on any thread, by any algorithm and on every dim, on every backend.
// What a driver or a vendor's library takes by means of its own is not counted.

namespace tandem {
namespace {

using test::Complaints;
using test::Guarded;
using test::JobCase;
using test::RankContextOfTest;

enum class Op : std::uint8_t { kGather, kScatter, kAllReduce };

struct Case {
  Op op;
  bool scaled;
  int dim;
  Algorithm algorithm;
  JobCase job;
};

constexpr int kWorld = 2;

std::string name_of(const Case& c) {
  constexpr std::array<const char*, 3> kNames = {"gather", "scatter", "all_reduce"};
  return std::string(c.scaled ? "scaled_" : "") + kNames[static_cast<std::size_t>(c.op)] + "_dim" +
         std::to_string(c.dim) + "_" + std::string(to_string(c.algorithm)) + "_" + to_string(c.job);
}
void PrintTo(const Case& c, std::ostream* out) {
  *out << name_of(c);
}

Dims halved(Dims sizes, int dim) {
  sizes[dim] /= kWorld;
  return sizes;
}

/// The tensors of a case, and the call.
class Operands {
 public:
  Operands(RankContextOfTest& rank, const Case& c)
      : case_(c),
        a_(rank.device, gathers() ? halved({8, 6}, c.dim) : Dims{8, 4}, factor_of(c)),
        b_(rank.device, gathers() ? Dims{6, 5} : Dims{4, 6}, factor_of(c)),
        out_(rank.device, sizes_of_out(c), DType::kBF16),
        bias_(rank.device, Dims{gathers() ? 5 : 6}, DType::kBF16),
        scale_(rank.device, Dims{1}, DType::kF32) {}

  Result<OpReport> call(RankContextOfTest& rank) {
    switch (case_.op) {
      case Op::kGather:
        return case_.scaled ? scaled_gather(rank) : gather(rank);
      case Op::kScatter:
        return case_.scaled ? scaled_scatter(rank) : scatter(rank);
      case Op::kAllReduce:
        break;
    }
    return case_.scaled ? scaled_all_reduce(rank) : all_reduce(rank);
  }

 private:
  [[nodiscard]] bool gathers() const { return case_.op == Op::kGather; }
  static Dims sizes_of_out(const Case& c) {
    if (c.op == Op::kGather) return {8, 5};
    return c.op == Op::kScatter ? halved({8, 6}, c.dim) : Dims{8, 6};
  }
  static DType factor_of(const Case& c) { return c.scaled ? DType::kF8E4M3 : DType::kBF16; }
  [[nodiscard]] std::int64_t gather_size() const { return case_.dim == 0 ? 8 : 6; }

  /// None for native: with one its products would be plain ones.
  [[nodiscard]] std::span<const TensorView> gather_biases() const {
    return case_.algorithm == Algorithm::kNative ? std::span<const TensorView>() : biases_;
  }

  Result<OpReport> gather(RankContextOfTest& rank) {
    return fused_all_gather_matmul({.a = a_.view(),
                                    .b = std::span(bs_).first(1),
                                    .gather_dim = case_.dim,
                                    .gather_size = gather_size(),
                                    .out = outs_,
                                    .bias = gather_biases(),
                                    .algorithm = case_.algorithm},
                                   rank.group, rank.stream);
  }
  Result<OpReport> scatter(RankContextOfTest& rank) {
    return fused_matmul_reduce_scatter({.a = as_,
                                        .b = bs_,
                                        .scatter_dim = case_.dim,
                                        .out = out_.view(),
                                        .bias = bias_.view(),
                                        .algorithm = case_.algorithm},
                                       rank.group, rank.stream);
  }
  Result<OpReport> all_reduce(RankContextOfTest& rank) {
    return fused_matmul_all_reduce(
        {.a = as_, .b = bs_, .out = out_.view(), .bias = bias_.view(), .algorithm = case_.algorithm},
        rank.group, rank.stream);
  }
  Result<OpReport> scaled_all_reduce(RankContextOfTest& rank) {
    return fused_scaled_matmul_all_reduce({.a = as_,
                                           .b = bs_,
                                           .a_scale = scales_,
                                           .b_scale = scales_,
                                           .bias = scaled_biases_,
                                           .out = out_.view(),
                                           .algorithm = case_.algorithm},
                                          rank.group, rank.stream);
  }
  Result<OpReport> scaled_gather(RankContextOfTest& rank) {
    return fused_all_gather_scaled_matmul({.a = a_.view(),
                                           .b = std::span(bs_).first(1),
                                           .a_scale = scale_.view(),
                                           .b_scale = scale_views_,
                                           .gather_dim = case_.dim,
                                           .gather_size = gather_size(),
                                           .out = outs_,
                                           .bias = std::span(scaled_biases_).first(1),
                                           .algorithm = case_.algorithm},
                                          rank.group, rank.stream);
  }
  Result<OpReport> scaled_scatter(RankContextOfTest& rank) {
    return fused_scaled_matmul_reduce_scatter({.a = as_,
                                               .b = bs_,
                                               .a_scale = scales_,
                                               .b_scale = scales_,
                                               .bias = scaled_biases_,
                                               .scatter_dim = case_.dim,
                                               .out = out_.view(),
                                               .algorithm = case_.algorithm},
                                              rank.group, rank.stream);
  }

  const Case& case_;
  Guarded a_, b_, out_, bias_, scale_;
  const std::vector<TensorView> as_ = {a_.view(), a_.view()};
  const std::vector<TensorView> bs_ = {b_.view(), b_.view()};
  const std::vector<TensorView> outs_ = {out_.view()};
  const std::vector<TensorView> biases_ = {bias_.view()};
  const std::vector<TensorView> scale_views_ = {scale_.view()};
  const std::vector<std::optional<TensorView>> scales_ = {scale_.view(), scale_.view()};
  const std::vector<std::optional<TensorView>> scaled_biases_ = {bias_.view(), bias_.view()};
};

class FusedRepeatPath : public ::testing::TestWithParam<Case> {};

TEST_P(FusedRepeatPath, allocates_nothing) {
  const Case c = GetParam();
  Complaints complaints;
  std::barrier<> meet(kWorld);
  std::int64_t allocated = -1;
  Config config = test::quick_config();
  config.isa = "scalar";  // the better kernels refuse, which must cost nothing either
  test::on_ranks(c.job, config, complaints, [&](RankContextOfTest& rank) -> Result<void> {
    Operands operands(rank, c);
    const auto once = [&]() -> Result<void> {
      const auto report = operands.call(rank);
      if (!report) return tl::unexpected(report.error());
      return rank.stream.synchronize();
    };
    Result<void> result_of_all;
    for (int round = 0; round < 5 && result_of_all; ++round) result_of_all = once();
    meet.arrive_and_wait();
    const std::int64_t before = test::num_allocations();
    meet.arrive_and_wait();
    for (int round = 0; round < 10 && result_of_all; ++round) result_of_all = once();
    meet.arrive_and_wait();
    if (rank.group.rank() == 0) allocated = test::num_allocations() - before;
    meet.arrive_and_wait();
    return result_of_all;
  });
  EXPECT_EQ(complaints.text(), "");
  EXPECT_EQ(allocated, 0) << "in 10 calls on 2 ranks";
}

std::vector<Case> every_case() {
  std::vector<Case> all;
  for (const JobCase& job : test::all_cases({kWorld})) {
    for (const Op op : {Op::kGather, Op::kScatter, Op::kAllReduce}) {
      for (const bool scaled : {false, true}) {
        if (scaled && !job.is_on_cpu()) continue;
        for (const int dim : {0, 1}) {
          if (op == Op::kAllReduce && dim > 0) continue;
          for (const Algorithm algorithm :
               {Algorithm::kSerial, Algorithm::kPipelined, Algorithm::kNative, Algorithm::kAuto}) {
            const bool has_native = job.is_on_cpu() && (op != Op::kGather || (dim == 0 && !scaled));
            if (algorithm == Algorithm::kNative && !has_native) continue;
            all.push_back({op, scaled, dim, algorithm, job});
          }
        }
      }
    }
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Ops, FusedRepeatPath, ::testing::ValuesIn(every_case()),
                         [](const auto& c) { return name_of(c.param); });

}  // namespace
}  // namespace tandem
