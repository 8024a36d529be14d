#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "conformance/fused_harness.hpp"
#include "harness/reference.hpp"

// fused_all_gather_scaled_matmul against float64 from the same f8 bits, as fused_all_gather_matmul_test.cpp:
// every scale mode, every dim, both algorithms, any number of ranks.

namespace tandem {
namespace {

using test::Complaints;
using test::Guarded;
using test::JobCase;
using test::RankContextOfTest;
using test::scale_of;
using test::value_of;
using test::with_last;

/// How the scale of a is given.
enum class Given { kShape, kFlat, kColumnASlice };

struct AlsoGathered {
  DType dtype = DType::kBF16;
  std::int64_t last = 3;
};

struct Case {
  Dims sizes;  ///< of all of a
  int dim = 0;
  ScaleMode mode = ScaleMode::kTensorwise;
  bool detect = false;  ///< scale_mode is left to the op
  Given given = Given::kShape;
  DType a = DType::kF8E4M3;
  DType b = DType::kF8E4M3;
  std::vector<DType> out = {DType::kBF16};  ///< one a b; b_i has 5 + i columns, on rank r r more
  bool b_rowwise = false;
  bool bias = false;          ///< of every second b
  bool result_scale = false;  ///< the same
  bool gathered = false;
  std::vector<AlsoGathered> also_gather = {};
  bool spread = false;   ///< no operand is contiguous
  double magnitude = 1;  ///< scales are that much larger

  [[nodiscard]] bool gathers_last() const { return dim == sizes.size() - 1; }
};

std::string to_text(const Case& c, int world) {
  std::string text =
      fmt::format("all_gather_scaled_matmul {} * {} {} dim {} w{} {}{}", to_string(c.a), to_string(c.b),
                  to_string(c.sizes), c.dim, world, to_string(c.mode), c.detect ? " detected" : "");
  for (const DType out : c.out) text += fmt::format(" {}", to_string(out));
  return text + (c.given == Given::kFlat ? " 2-D" : "") + (c.bias ? " bias" : "") +
         (c.result_scale ? " result_scale" : "") + (c.spread ? " spread" : "");
}

constexpr int kA = 1;
constexpr int kScaleOfA = 2;
constexpr int kBeside = 10;
constexpr int kB = 100;
constexpr int kScaleOfB = 200;
constexpr int kBias = 300;
constexpr int kResultScale = 400;

/// The scale of a's row `row` over all ranks, in the slice of k that rank `source` has.
double scale_of_a(const Case& c, std::int64_t row, int source) {
  if (c.mode == ScaleMode::kNone) return 1;
  if (c.mode == ScaleMode::kTensorwise) return c.magnitude * scale_of(kScaleOfA, 0);
  const bool by_slice =
      c.gathers_last() && (c.mode == ScaleMode::kRowwiseSharded || c.given == Given::kColumnASlice);
  return c.magnitude * scale_of(kScaleOfA + (by_slice ? 1000 * source : 0), row);
}
double scale_of_b(const Case& c, int i, std::int64_t column) {
  if (c.mode == ScaleMode::kNone) return 1;
  return scale_of(kScaleOfB + i, c.b_rowwise ? column : 0);
}
bool has_bias(const Case& c, int i) {
  return c.bias && i % 2 == 0;
}
double result_scale_of(const Case& c, int i) {
  return c.result_scale && i % 2 == 0 ? scale_of(kResultScale + i, 0) : 1;
}
/// Not the type of any output.
DType bias_type(int i) {
  return i % 4 == 0 ? DType::kF16 : DType::kF8E5M2;
}

/// One rank's tensors of a case.
class Operands {
 public:
  Operands(RankContextOfTest& rank, const Case& c)
      : rank_(rank), case_(c), mine_(shard_of(c.sizes[c.dim], rank.group.size(), rank.group.rank())) {
    args.a = add(shard_sizes(c.sizes), c.a,
                 [&](std::int64_t idx) { return value_of(kA, global_index(c.sizes, idx), c.a); });
    args.gather_dim = c.dim;
    args.gather_size = c.sizes[c.dim];
    add_scale_of_a();
    for (int i = 0; i < static_cast<int>(c.out.size()); ++i) add_b(i);
    for (int i = 0; i < static_cast<int>(c.also_gather.size()); ++i) add_beside(i);
    args.b = b_;
    args.b_scale = b_scales_;
    args.bias = biases_;
    args.result_scale = result_scales_;
    args.also_gather = also_gather_;
  }

  AllGatherScaledMatmulArgs args;

 private:
  using Values = std::function<double(std::int64_t idx)>;
  TensorView add(const Dims& sizes, DType dtype, const Values& value) {
    tensors_.emplace_back(rank_.device, case_.spread ? test::spread_out(sizes) : test::dense(sizes), dtype);
    tensors_.back().fill(value);
    return tensors_.back().view();
  }
  [[nodiscard]] Dims shard_sizes(Dims sizes) const {
    sizes[case_.dim] = mine_.size;
    return sizes;
  }
  /// Of element `idx` of a shard in the tensor of `sizes`.
  [[nodiscard]] std::int64_t global_index(const Dims& sizes, std::int64_t idx) const {
    Dims at = test::position(shard_sizes(sizes), idx);
    at[case_.dim] += mine_.offset;
    return test::flat_index(sizes, at);
  }

  void add_scale_of_a() {
    const Case& c = case_;
    if (c.mode == ScaleMode::kNone) return;
    args.scale_mode = c.detect ? ScaleMode::kDetect : c.mode;
    const bool sharded = c.mode == ScaleMode::kRowwiseSharded;
    Dims rows = with_last(sharded && !c.gathers_last() ? shard_sizes(c.sizes) : c.sizes, 1);
    if (c.mode == ScaleMode::kTensorwise) rows = {1};
    if (c.given == Given::kColumnASlice) rows = with_last(rows, rank_.group.size());
    const int world = static_cast<int>(rows.back());
    const Dims sizes = c.given == Given::kFlat ? Dims{numel(rows), 1} : rows;
    args.a_scale = add(sizes, DType::kF32, [&](std::int64_t idx) {
      if (c.mode == ScaleMode::kTensorwise) return scale_of_a(c, 0, 0);
      if (c.gathers_last())
        return scale_of_a(
            c, idx / world,
            c.given == Given::kColumnASlice ? static_cast<int>(idx % world) : rank_.group.rank());
      return scale_of_a(c, sharded ? global_index(with_last(c.sizes, 1), idx) : idx, 0);
    });
  }

  void add_b(int i) {
    const Case& c = case_;
    const std::int64_t n = 5 + i + rank_.group.rank();
    b_.push_back(add({c.sizes.back(), n}, c.b, [&](std::int64_t idx) { return value_of(kB + i, idx, c.b); }));
    if (c.mode != ScaleMode::kNone) {
      b_scales_.push_back(add(c.b_rowwise ? Dims{1, n} : Dims{}, DType::kF32,
                              [&](std::int64_t idx) { return scale_of_b(c, i, idx); }));
    }
    if (c.bias) {
      biases_.emplace_back();
      if (has_bias(c, i))
        biases_.back() =
            add({n}, bias_type(i), [&](std::int64_t idx) { return value_of(kBias + i, idx, bias_type(i)); });
    }
    if (c.result_scale) {
      result_scales_.emplace_back();
      if (i % 2 == 0)
        result_scales_.back() = add({1, 1}, DType::kF32, [&](std::int64_t) { return result_scale_of(c, i); });
    }
  }

  void add_beside(int i) {
    const AlsoGathered& also = case_.also_gather[static_cast<std::size_t>(i)];
    const Dims all = case_.gathers_last() ? case_.sizes : with_last(case_.sizes, also.last);
    also_gather_.push_back(add(shard_sizes(all), also.dtype, [&](std::int64_t idx) {
      return value_of(kBeside + i, global_index(all, idx), also.dtype);
    }));
  }

  RankContextOfTest& rank_;
  const Case& case_;
  Shard mine_;
  std::deque<Guarded> tensors_;
  std::vector<TensorView> b_, b_scales_, also_gather_;
  std::vector<std::optional<TensorView>> biases_, result_scales_;
};

/// out_i against float64. The bound: one rounding of the result, and f32 sums of K terms, W slices and the
/// epilogue.
void check_output(const Case& c, int world, const Guarded& out, int i, const std::string& who,
                  Complaints& complaints) {
  const Dims& sizes = out.view().sizes;
  const DType dtype = out.view().dtype;
  const std::int64_t k = c.sizes.back();
  for (std::int64_t idx = 0; idx < out.view().numel(); ++idx) {
    const Dims at = test::position(sizes, idx);
    const std::int64_t row = idx / sizes.back();
    double sum = 0;
    double magnitude = 0;
    for (std::int64_t j = 0; j < k; ++j) {
      const int source = c.gathers_last() ? static_cast<int>(j / shard_stride(k, world)) : 0;
      const double term = value_of(kA, row * k + j, c.a) * scale_of_a(c, row, source) *
                          value_of(kB + i, j * sizes.back() + at.back(), c.b);
      sum += term;
      magnitude += std::abs(term);
    }
    sum *= scale_of_b(c, i, at.back());
    if (has_bias(c, i)) sum += value_of(kBias + i, at.back(), bias_type(i));
    sum *= result_scale_of(c, i);
    const double need = std::clamp(sum, -test::largest_of(dtype), test::largest_of(dtype));
    const double bound = harness::rounding_error(dtype, need) +
                         static_cast<double>(k + world + 8) * std::ldexp(1.0, -24) * (magnitude + 1) *
                             1.13;  // f8 rounds by up to 1/8 of what it is given
    if (!(std::abs(out.at(idx) - need) <= bound)) {
      complaints.add(fmt::format("{}: out[{}] at {} is {}, need {} +- {}", who, i, to_string(at), out.at(idx),
                                 need, bound));
      return;
    }
  }
  if (!out.guards_are_whole()) complaints.add(fmt::format("{}: a guard byte of out[{}] was written", who, i));
}

/// A whole that was gathered: every bit of the shards.
void check_whole(const Guarded& whole, int id, const std::string& who, Complaints& complaints) {
  for (std::int64_t idx = 0; idx < whole.view().numel(); ++idx) {
    if (whole.at(idx) == value_of(id, idx, whole.view().dtype)) continue;
    complaints.add(fmt::format("{}: what was gathered of tensor {} is {} at {}", who, id, whole.at(idx),
                               to_string(test::position(whole.view().sizes, idx))));
    return;
  }
  if (!whole.guards_are_whole())
    complaints.add(fmt::format("{}: a guard byte of tensor {} was written", who, id));
}

/// The outputs of one call.
struct Results {
  std::deque<Guarded> out, also_gather;
  std::optional<Guarded> gathered;
  std::vector<TensorView> out_views, also_views;
};

Result<void> make_results(RankContextOfTest& rank, const Case& c, AllGatherScaledMatmulArgs& args,
                          Results& results) {
  for (int i = 0; i < static_cast<int>(c.out.size()); ++i) {
    const auto layout = output_layout(args, i);
    if (!layout) return tl::unexpected(layout.error());
    results.out_views.push_back(
        results.out.emplace_back(rank.device, *layout, c.out[static_cast<std::size_t>(i)]).view());
  }
  for (int i = 0; i < static_cast<int>(c.also_gather.size()); ++i) {
    const auto layout = also_gathered_layout(args, i);
    if (!layout) return tl::unexpected(layout.error());
    results.also_views.push_back(
        results.also_gather
            .emplace_back(rank.device, *layout, c.also_gather[static_cast<std::size_t>(i)].dtype)
            .view());
  }
  if (c.gathered) {
    const auto layout = gathered_layout(args);
    if (!layout) return tl::unexpected(layout.error());
    args.gathered = results.gathered.emplace(rank.device, *layout, c.a).view();
  }
  args.out = results.out_views;
  args.also_gathered = results.also_views;
  return {};
}

/// Runs one case by both algorithms on one rank and holds the results against the reference and each other.
Result<void> run_case(RankContextOfTest& rank, const Case& c, Complaints& complaints) {
  Operands in(rank, c);
  std::vector<std::vector<std::byte>> bits;
  for (const Algorithm algorithm : {Algorithm::kSerial, Algorithm::kPipelined}) {
    in.args.algorithm = algorithm;
    const std::string who = to_text(c, rank.group.size()) + " " + std::string(to_string(algorithm)) +
                            ", rank " + std::to_string(rank.group.rank());
    Results results;
    if (auto made = make_results(rank, c, in.args, results); !made) return made;
    const auto report = fused_all_gather_scaled_matmul(in.args, rank.group, rank.stream);
    if (!report) return tl::unexpected(Error(report.error().code(), who + ": " + report.error().text()));
    if (report->algorithm != algorithm)
      complaints.add(who + ": ran " + std::string(to_string(report->algorithm)));
    if (auto done = rank.stream.synchronize(); !done) return done;

    for (std::size_t i = 0; i < results.out.size(); ++i) {
      Guarded& out = results.out[i];
      out.download();
      check_output(c, rank.group.size(), out, static_cast<int>(i), who, complaints);
      if (algorithm == Algorithm::kSerial) {
        bits.push_back(out.bytes());
      } else if (bits[i] != out.bytes()) {
        complaints.add(fmt::format("{}: out[{}] has other bits than by serial", who, i));
      }
    }
    for (std::size_t i = 0; i < results.also_gather.size(); ++i) {
      results.also_gather[i].download();
      check_whole(results.also_gather[i], kBeside + static_cast<int>(i), who, complaints);
    }
    if (!results.gathered) continue;
    results.gathered->download();
    check_whole(*results.gathered, kA, who, complaints);
  }
  return {};
}

void run_all(const JobCase& job, const std::vector<Case>& cases) {
  Complaints complaints;
  test::on_ranks(job, test::quick_config(), complaints, [&](RankContextOfTest& rank) -> Result<void> {
    for (const Case& c : cases) {
      if (auto ran = run_case(rank, c, complaints); !ran) return ran;
    }
    return test::check_pads(rank, complaints);
  });
  EXPECT_EQ(complaints.text(), "");
}

constexpr ScaleMode kModes[] = {ScaleMode::kTensorwise, ScaleMode::kRowwiseSharded,
                                ScaleMode::kRowwiseReplicated, ScaleMode::kNone};

class AllGatherScaledMatmul : public ::testing::TestWithParam<JobCase> {};

TEST_P(AllGatherScaledMatmul, every_mode_and_dim) {
  std::vector<Case> cases;
  for (const ScaleMode mode : kModes) {
    for (const Dims& sizes : {Dims{16, 32}, Dims{8, 16, 32}, Dims{2, 8, 8, 16}}) {
      for (int dim = 0; dim < sizes.size(); ++dim) {
        const bool even = dim % 2 == 0;
        cases.push_back({.sizes = sizes,
                         .dim = dim,
                         .mode = mode,
                         .a = even ? DType::kF8E4M3 : DType::kF8E5M2,
                         .out = {DType::kBF16, DType::kF32, even ? DType::kF8E4M3 : DType::kF16},
                         .b_rowwise = even,
                         .bias = even,
                         .result_scale = !even,
                         .gathered = even});
      }
    }
  }
  run_all(GetParam(), cases);
}

TEST_P(AllGatherScaledMatmul, odd_and_empty_sizes) {
  std::vector<Case> cases;
  for (const ScaleMode mode : kModes) {
    for (const std::int64_t m : {0, 1, 2, 5, 9}) {
      for (const std::int64_t k : {0, 1, 7}) {
        cases.push_back({.sizes = {m, k}, .dim = 0, .mode = mode, .bias = true, .gathered = m % 2 == 1});
        cases.push_back(
            {.sizes = {k, m}, .dim = 1, .mode = mode, .result_scale = true, .gathered = m % 2 == 0});
        cases.push_back({.sizes = {3, m, k},
                         .dim = 1,
                         .mode = mode,
                         .b_rowwise = true,
                         .also_gather = {{DType::kF32, 2}}});
      }
    }
  }
  run_all(GetParam(), cases);
}

TEST_P(AllGatherScaledMatmul, finds_the_mode_by_the_shape) {
  std::vector<Case> cases;
  for (const ScaleMode mode : kModes) {
    for (int dim = 0; dim < 3; ++dim) {
      // A replicated scale of a gathered last dim looks like a sharded one, unless it has a column a slice.
      const bool last = dim == 2;
      if (!last || mode != ScaleMode::kRowwiseReplicated)
        cases.push_back({.sizes = {8, 16, 8}, .dim = dim, .mode = mode, .detect = true});
      if (mode == ScaleMode::kRowwiseSharded || (mode == ScaleMode::kRowwiseReplicated && !last))
        cases.push_back(
            {.sizes = {8, 16, 8}, .dim = dim, .mode = mode, .detect = true, .given = Given::kFlat});
    }
  }
  cases.push_back({.sizes = {8, 16, 8},
                   .dim = 2,
                   .mode = ScaleMode::kRowwiseReplicated,
                   .detect = GetParam().ranks.size > 1,
                   .given = Given::kColumnASlice});
  cases.push_back(
      {.sizes = {8, 16, 8}, .dim = 2, .mode = ScaleMode::kRowwiseReplicated, .given = Given::kFlat});
  run_all(GetParam(), cases);
}

TEST_P(AllGatherScaledMatmul, strides_and_tensors_beside) {
  std::vector<Case> cases;
  for (const ScaleMode mode : kModes) {
    for (int dim = 0; dim < 3; ++dim) {
      cases.push_back({.sizes = {11, 13, 17},
                       .dim = dim,
                       .mode = mode,
                       .b = DType::kF8E5M2,
                       .out = {DType::kF16, DType::kF8E5M2},
                       .b_rowwise = true,
                       .bias = true,
                       .result_scale = true,
                       .gathered = dim == 1,
                       .also_gather = {{DType::kBF16, 4}, {DType::kF8E4M3, 1}, {DType::kF32, 6}},
                       .spread = true});
    }
  }
  run_all(GetParam(), cases);
}

TEST_P(AllGatherScaledMatmul, f8_results_saturate) {
  std::vector<Case> cases;
  for (int dim = 0; dim < 2; ++dim) {
    cases.push_back({.sizes = {16, 32},
                     .dim = dim,
                     .out = {DType::kF8E4M3, DType::kF8E5M2},
                     .magnitude = std::ldexp(1.0, 15)});
  }
  run_all(GetParam(), cases);
}

INSTANTIATE_TEST_SUITE_P(Ranks, AllGatherScaledMatmul, ::testing::ValuesIn(test::cpu_cases({1, 2, 3, 4, 8})),
                         test::job_name);

}  // namespace
}  // namespace tandem
