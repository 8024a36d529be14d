// With Config::batch_invariant a row of a batch has the same bits as in a larger batch: of every fused op, by
// every algorithm, whichever rank owns the row, and of products alone. What all batches are compared with is
// one call with the most rows, by `serial`, whose numbers other tests compare with float64.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "conformance/fused_harness.hpp"
#include "harness/failure.hpp"

namespace tandem {
namespace {

using coll::ReduceOp;
using test::Complaints;
using test::Guarded;
using test::JobCase;
using test::RankContextOfTest;

constexpr std::int64_t kColumns = 264;

/// A batch: rows of the largest one.
struct Batch {
  std::int64_t first = 0;
  std::int64_t rows = 0;
};

/// Few rows from both ends, and nearly all: as many as native gathers of GPUs take by copies, if there are so
/// many. Simulated GPUs are slow: `few` batches will do there.
std::vector<Batch> batches_of(std::int64_t most, bool few) {
  std::vector<Batch> batches;
  const std::vector<std::int64_t> all = {1, 2, 3, 7, 64, 65, 130};
  for (const std::int64_t rows : few ? std::vector<std::int64_t>{1, 3, 65, 130} : all) {
    batches.push_back({most - rows, rows});
    if (!few) batches.push_back({0, rows});
  }
  batches.push_back({5, most - 9});
  return batches;
}

/// A matrix of these values, `shifted` so that it begins one element behind where memory is aligned, and
/// column-major if that is asked for.
struct Matrix {
  std::unique_ptr<Guarded> memory;
  TensorView view;

  Matrix(Device& device, const Tensor& values, bool shifted, bool by_columns = false) {
    const Dims& sizes = values.sizes();
    memory = std::make_unique<Guarded>(device, Dims{values.view().numel() + 1}, values.dtype());
    const std::int64_t skipped = shifted ? 1 : 0;
    view = memory->view();
    view.data = view.data_as<std::byte>() + skipped * size_bytes(view.dtype);
    view.sizes = sizes;
    view.strides = by_columns ? Dims{1, sizes[0]} : contiguous_strides(sizes);
    TensorView host = memory->host();
    host.data = host.data_as<std::byte>() + skipped * size_bytes(view.dtype);
    host.sizes = view.sizes;
    host.strides = view.strides;
    harness::take(convert(values.view(), host));
    memory->upload();
  }
};

/// Columns [first_column, ...) of rows [first_row, ...) of `whole` must have the bits of `part`.
void compare(const Guarded& part, const Guarded& whole, std::int64_t first_row, std::int64_t first_column,
             const std::string& who, Complaints& complaints) {
  part.download();
  harness::Wrong wrong;
  const TensorView got = part.host();
  const TensorView need = whole.host().narrow(0, first_row, got.size(0));
  const std::int64_t row_bytes = got.size(1) * size_bytes(got.dtype);
  for (std::int64_t row = 0; row < got.size(0); ++row) {
    const auto* const got_row = got.data_as<std::byte>() + row * row_bytes;
    const auto* const need_row =
        need.data_as<std::byte>() + (row * need.size(1) + first_column) * size_bytes(need.dtype);
    if (std::memcmp(got_row, need_row, static_cast<std::size_t>(row_bytes)) != 0)
      wrong.add(fmt::format("row {} has other bits", row));
  }
  complaints.add(who, part, wrong);
}

bool has_native(const OpReport& report) {
  return std::any_of(report.candidates.begin(), report.candidates.end(), [](const Candidate& one) {
    return one.algorithm == Algorithm::kNative && one.why_not.empty();
  });
}

/// What is checked of every family of ops, given one call of it.
struct Counts {
  int native = 0;
};
template <class Run, class Check>
Result<void> by_every_algorithm(RankContextOfTest& rank, Counts& counts, Run run, Check check) {
  bool runs_natively = false;
  for (const Algorithm algorithm : {Algorithm::kPipelined, Algorithm::kSerial, Algorithm::kNative}) {
    if (algorithm == Algorithm::kNative && !runs_natively) continue;
    const Result<OpReport> report = run(algorithm);
    if (!report) return tl::unexpected(report.error());
    if (algorithm == Algorithm::kPipelined) runs_natively = has_native(*report);
    if (algorithm == Algorithm::kNative) ++counts.native;
    if (auto done = rank.stream.synchronize(); !done) return done;
    check(to_string(algorithm));
  }
  return {};
}

/// Sums over ranks: a case of a scatter and an all-reduce.
struct Sums {
  DType dtype = DType::kBF16;
  std::vector<std::int64_t> k = {200};
  ReduceOp op = ReduceOp::kSum;
  bool bias = false;
  bool scaled = false;
  bool fast_accum = false;
  bool shifted = false;
  bool b_by_columns = false;
  int scatter_dim = 0;
  std::int64_t most = 190;  ///< rows

  [[nodiscard]] std::string text() const {
    return fmt::format("{} k {}{}{}{}{}{}{} dim {}", to_string(dtype), fmt::join(k, "+"),
                       op == ReduceOp::kAvg ? " avg" : "", bias ? " bias" : "", scaled ? " scaled" : "",
                       fast_accum ? " fast" : "", shifted ? " shifted" : "",
                       b_by_columns ? " b by columns" : "", scatter_dim);
  }
};

class SumOperands {
 public:
  SumOperands(RankContextOfTest& rank, const Sums& sums) : rank_(rank), sums_(sums) {
    const int me = rank.group.rank();
    const DType factor = sums.scaled ? DType::kF8E4M3 : sums.dtype;
    for (std::size_t j = 0; j < sums.k.size(); ++j) {
      const std::int64_t k = sums.k[j];
      const int seed = 100 * me + 10 * static_cast<int>(j);
      a_.emplace_back(rank.device, test::generated({sums.most, k}, factor, seed), sums.shifted);
      b_.emplace_back(rank.device, test::generated({k, kColumns}, factor, seed + 1), sums.shifted,
                      sums.scaled || sums.b_by_columns);
      if (!sums.scaled) continue;
      a_scale_.emplace_back(rank.device, test::generated_scale({sums.most, 1}, seed + 2), false);
      b_scale_.emplace_back(rank.device, test::generated_scale({1, kColumns}, seed + 3), false);
    }
    bias_ = std::make_unique<Matrix>(rank.device, test::generated({1, kColumns}, sums.dtype, 7), false);
  }

  /// `to_all`: an all-reduce.
  Result<OpReport> run(const Batch& batch, Algorithm algorithm, bool to_all, std::unique_ptr<Guarded>& out) {
    std::vector<TensorView> a, b;
    std::vector<std::optional<TensorView>> a_scale, b_scale;
    for (const Matrix& one : a_) a.push_back(one.view.narrow(0, batch.first, batch.rows));
    for (const Matrix& one : b_) b.push_back(one.view);
    for (const Matrix& one : a_scale_) a_scale.push_back(one.view.narrow(0, batch.first, batch.rows));
    for (const Matrix& one : b_scale_) b_scale.push_back(one.view);
    out = std::make_unique<Guarded>(rank_.device, out_sizes(batch, to_all), sums_.dtype);
    const auto fill = [&](auto args) {
      args.a = a;
      args.b = b;
      args.reduce_op = sums_.op;
      args.out = out->view();
      args.algorithm = algorithm;
      return args;
    };
    const auto scale = [&](auto args) {
      args.a_scale = a_scale;
      args.b_scale = b_scale;
      args.fast_accum = sums_.fast_accum;
      return args;
    };
    const auto add_bias = [&](auto args) {
      if (sums_.bias) args.bias = bias_->view.select(0, 0);
      return args;
    };
    if (to_all) {
      if (sums_.scaled)
        return fused_scaled_matmul_all_reduce(scale(fill(ScaledMatmulAllReduceArgs())), rank_.group,
                                              rank_.stream);
      return fused_matmul_all_reduce(add_bias(fill(MatmulAllReduceArgs())), rank_.group, rank_.stream);
    }
    if (sums_.scaled) {
      auto args = scale(fill(ScaledMatmulReduceScatterArgs()));
      args.scatter_dim = sums_.scatter_dim;
      return fused_scaled_matmul_reduce_scatter(args, rank_.group, rank_.stream);
    }
    auto args = add_bias(fill(MatmulReduceScatterArgs()));
    args.scatter_dim = sums_.scatter_dim;
    return fused_matmul_reduce_scatter(args, rank_.group, rank_.stream);
  }

  /// Of the rows of a batch that this rank gets.
  [[nodiscard]] std::int64_t first_own_row(const Batch& batch, bool to_all) const {
    return to_all || sums_.scatter_dim == 1 ? batch.first : batch.first + own_of(batch.rows).offset;
  }

 private:
  [[nodiscard]] Shard own_of(std::int64_t size) const {
    return shard_of(size, rank_.group.size(), rank_.group.rank());
  }
  [[nodiscard]] Dims out_sizes(const Batch& batch, bool to_all) const {
    if (to_all) return {batch.rows, kColumns};
    if (sums_.scatter_dim == 1) return {batch.rows, own_of(kColumns).size};
    return {own_of(batch.rows).size, kColumns};
  }

  RankContextOfTest& rank_;
  const Sums& sums_;
  std::vector<Matrix> a_, b_, a_scale_, b_scale_;
  std::unique_ptr<Matrix> bias_;
};

Config invariant_config() {
  Config config = test::quick_config();
  config.batch_invariant = true;
  return config;
}

class BatchInvariant : public ::testing::TestWithParam<JobCase> {
 protected:
  [[nodiscard]] static bool is_on_gpu() { return !GetParam().is_on_cpu(); }
  [[nodiscard]] static int world() { return GetParam().ranks.size; }

  static void check(const std::vector<Sums>& cases, const Config& config, Complaints& complaints,
                    Counts& counts) {
    test::on_ranks(GetParam(), config, complaints, [&](RankContextOfTest& rank) -> Result<void> {
      for (const Sums& sums : cases) {
        if (auto ok = check(rank, sums, complaints, counts); !ok) return ok;
      }
      return {};
    });
  }
  /// Without complaints; where native scatters are looked for some must have run.
  static void check(const std::vector<Sums>& cases, bool has_native_scatters = false) {
    Complaints complaints;
    Counts counts;
    check(cases, invariant_config(), complaints, counts);
    EXPECT_EQ(complaints.text(), "");
    if (has_native_scatters && is_on_gpu() && world() > 1) {
      EXPECT_GT(counts.native, 0);
    }
  }

 private:
  static Result<void> check(RankContextOfTest& rank, const Sums& sums, Complaints& complaints,
                            Counts& counts) {
    SumOperands operands(rank, sums);
    Counts own;
    // What a rank keeps of columns is its own; rows of an all-reduce are all of a scatter's.
    const bool by_columns = sums.scatter_dim == 1;
    std::unique_ptr<Guarded> whole;
    if (const auto report = operands.run({0, sums.most}, Algorithm::kSerial, !by_columns, whole); !report)
      return tl::unexpected(report.error());
    if (auto done = rank.stream.synchronize(); !done) return done;
    whole->download();
    for (const Batch& batch : batches_of(sums.most, is_on_gpu())) {
      for (const bool to_all : {false, true}) {
        if (to_all && by_columns) continue;
        std::unique_ptr<Guarded> out;
        auto done = by_every_algorithm(
            rank, own, [&](Algorithm algorithm) { return operands.run(batch, algorithm, to_all, out); },
            [&](std::string_view algorithm) {
              compare(*out, *whole, operands.first_own_row(batch, to_all), 0,
                      fmt::format("{}, rows [{}:{}], {} {}, rank {}", sums.text(), batch.first,
                                  batch.first + batch.rows, to_all ? "all-reduce" : "scatter", algorithm,
                                  rank.group.rank()),
                      complaints);
            });
        if (!done) return done;
      }
    }
    if (rank.group.rank() == 0) counts.native += own.native;
    return {};
  }
};

TEST_P(BatchInvariant, sums_of_products) {
  std::vector<Sums> cases;
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    cases.push_back({.dtype = dtype});
    cases.push_back({.dtype = dtype, .op = ReduceOp::kAvg, .bias = true, .b_by_columns = true});
  }
  check(cases, true);
}

TEST_P(BatchInvariant, sums_of_lists) {
  check({{.k = {40, 8, 72}},
         {.dtype = DType::kF16, .k = {40, 72}, .bias = true},
         {.dtype = DType::kF32, .k = {40, 9}}});
}

TEST_P(BatchInvariant, sums_of_scaled_products) {
  check({{.k = {256}, .scaled = true},
         {.k = {256, 144}, .scaled = true, .fast_accum = true},
         {.dtype = DType::kF32, .k = {256}, .op = ReduceOp::kAvg, .scaled = true}});
}

// Whether the native kernels run must not depend on where an operand begins.
TEST_P(BatchInvariant, sums_of_operands_that_lie_anyhow) {
  check({{.shifted = true}, {.k = {77}}, {.dtype = DType::kF16, .shifted = true, .b_by_columns = true}},
        true);
}

TEST_P(BatchInvariant, sums_of_scattered_columns) {
  check({{.scatter_dim = 1},
         {.dtype = DType::kF16, .bias = true, .b_by_columns = true, .scatter_dim = 1},
         {.k = {256}, .scaled = true, .scatter_dim = 1}});
}

/// A gather: of rows, or of columns.
struct Gather {
  DType dtype = DType::kBF16;
  std::int64_t k = 200;
  int dim = 0;
  ScaleMode scale = ScaleMode::kNone;
  bool fast_accum = false;
  bool bias = false;
  bool shifted = false;
  bool b_by_columns = false;
  std::int64_t most = 190;  ///< rows

  [[nodiscard]] bool is_scaled() const { return scale != ScaleMode::kNone; }
  [[nodiscard]] DType factor() const { return is_scaled() ? DType::kF8E4M3 : dtype; }
  /// Shards of few rows share tiles, which those with scales of their own do not.
  [[nodiscard]] bool may_be_native() const {
    return dtype != DType::kF32 && dim == 0 && (!is_scaled() || most > 520);
  }
  [[nodiscard]] bool is_by_blocks() const { return scale == ScaleMode::kBlockwiseSharded; }
  [[nodiscard]] std::string text() const {
    return fmt::format("{} k {} dim {} {}{}{}{}{}", to_string(dtype), k, dim, to_string(scale),
                       fast_accum ? " fast" : "", bias ? " bias" : "", shifted ? " shifted" : "",
                       b_by_columns ? " b by columns" : "");
  }
};

class GatherOperands {
 public:
  GatherOperands(RankContextOfTest& rank, const Gather& gather)
      : rank_(rank),
        gather_(gather),
        a_(rank.device, test::generated({gather.most, gather.k}, gather.factor(), 1), gather.shifted),
        b_(rank.device, test::generated({gather.k, kColumns}, gather.factor(), 2 + rank.group.rank()),
           gather.shifted, gather.is_scaled() || gather.b_by_columns),
        bias_(rank.device, test::generated({1, kColumns}, gather.dtype, 5), false),
        a_scale_(rank.device, test::generated_scale({gather.most, num_blocks(gather.k)}, 3), false),
        b_scale_(rank.device,
                 test::generated_scale(
                     {num_blocks(gather.k), gather.is_by_blocks() ? num_blocks(kColumns) : kColumns}, 4),
                 false) {}

  Result<OpReport> run(const Batch& batch, Algorithm algorithm, std::unique_ptr<Guarded>& out) {
    TensorView a = a_.view.narrow(0, batch.first, batch.rows);
    TensorView a_scale = a_scale_.view.narrow(0, batch.first, batch.rows);
    const std::int64_t total = gather_.dim == 0 ? batch.rows : gather_.k;
    const Shard own = shard_of(total, rank_.group.size(), rank_.group.rank());
    a = a.narrow(gather_.dim, own.offset, own.size);
    if (gather_.dim == 0) a_scale = a_scale.narrow(0, own.offset, own.size);
    out = std::make_unique<Guarded>(rank_.device, Dims{batch.rows, kColumns}, gather_.dtype);
    const std::vector<TensorView> b = {b_.view}, outs = {out->view()}, b_scale = {b_scale_.view};
    const std::vector<TensorView> bias = {bias_.view.select(0, 0)};
    if (!gather_.is_scaled()) {
      AllGatherMatmulArgs args{.a = a,
                               .b = b,
                               .gather_dim = gather_.dim,
                               .gather_size = total,
                               .out = outs,
                               .algorithm = algorithm};
      if (gather_.bias) args.bias = bias;
      return fused_all_gather_matmul(args, rank_.group, rank_.stream);
    }
    AllGatherScaledMatmulArgs args{.a = a,
                                   .b = b,
                                   .a_scale = a_scale,
                                   .scale_mode = gather_.scale,
                                   .b_scale = b_scale,
                                   .gather_dim = gather_.dim,
                                   .gather_size = total,
                                   .out = outs,
                                   .fast_accum = gather_.fast_accum,
                                   .algorithm = algorithm};
    const std::vector<std::optional<TensorView>> some_bias(bias.begin(), bias.end());
    if (gather_.bias) args.bias = some_bias;
    return fused_all_gather_scaled_matmul(args, rank_.group, rank_.stream);
  }

  /// The product of all rows of a batch, without a group.
  Result<void> multiply(const Batch& batch, std::unique_ptr<Guarded>& out) {
    out = std::make_unique<Guarded>(rank_.device, Dims{batch.rows, kColumns}, gather_.dtype);
    const TensorView a = a_.view.narrow(0, batch.first, batch.rows);
    if (!gather_.is_scaled()) {
      gemm::MmArgs args{.a = a, .b = b_.view, .out = out->view(), .bias = {}};
      if (gather_.bias) args.bias = bias_.view.select(0, 0);
      return gemm::mm(args, rank_.stream);
    }
    gemm::ScaledMmArgs args{.a = a,
                            .b = b_.view,
                            .a_scale = a_scale_.view.narrow(0, batch.first, batch.rows),
                            .b_scale = b_scale_.view,
                            .out = out->view(),
                            .fast_accum = gather_.fast_accum};
    if (gather_.bias) args.bias = bias_.view.select(0, 0);
    return gemm::scaled_matmul(args, rank_.stream);
  }

 private:
  /// Columns of a's scale.
  [[nodiscard]] std::int64_t num_blocks(std::int64_t size) const {
    return gather_.is_by_blocks() ? gemm::num_scale_blocks(size) : 1;
  }

  RankContextOfTest& rank_;
  const Gather& gather_;
  Matrix a_, b_, bias_, a_scale_, b_scale_;
};

Result<void> check_gather(RankContextOfTest& rank, const Gather& gather, Complaints& complaints,
                          Counts& counts) {
  GatherOperands operands(rank, gather);
  std::unique_ptr<Guarded> whole;
  const auto report = operands.run({0, gather.most}, Algorithm::kSerial, whole);
  if (!report) return tl::unexpected(report.error());
  if (report->reason.find("batch invariant, products by") == std::string_view::npos)
    complaints.add(gather.text() + ": " + std::string(report->reason));
  if (auto done = rank.stream.synchronize(); !done) return done;
  whole->download();
  for (const Batch& batch : batches_of(gather.most, rank.device.id().kind == DeviceKind::kCuda)) {
    std::unique_ptr<Guarded> out;
    const auto compare_out = [&](std::string_view how) {
      compare(*out, *whole, batch.first, 0,
              fmt::format("{}, rows [{}:{}], {}, rank {}", gather.text(), batch.first,
                          batch.first + batch.rows, how, rank.group.rank()),
              complaints);
    };
    auto done = by_every_algorithm(
        rank, counts, [&](Algorithm algorithm) { return operands.run(batch, algorithm, out); }, compare_out);
    if (!done) return done;
    if (gather.dim != 0) continue;
    if (done = operands.multiply(batch, out); !done) return done;
    if (done = rank.stream.synchronize(); !done) return done;
    compare_out("product alone");
  }
  return {};
}

class BatchInvariantGather : public BatchInvariant {
 protected:
  static void check(const std::vector<Gather>& cases) {
    Complaints complaints;
    test::on_ranks(GetParam(), invariant_config(), complaints, [&](RankContextOfTest& rank) -> Result<void> {
      for (const Gather& gather : cases) {
        Counts counts;
        if (auto ok = check_gather(rank, gather, complaints, counts); !ok) return ok;
        if (is_on_gpu() && world() > 1 && gather.may_be_native() && counts.native == 0)
          complaints.add(gather.text() + ": no native gather has run");
      }
      return {};
    });
    EXPECT_EQ(complaints.text(), "");
  }
};

TEST_P(BatchInvariantGather, gathers_of_rows) {
  std::vector<Gather> cases;
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    cases.push_back({.dtype = dtype});
    cases.push_back({.dtype = dtype, .bias = true, .b_by_columns = true});
  }
  cases.push_back({.most = 620});
  check(cases);
}

TEST_P(BatchInvariantGather, gathers_of_operands_that_lie_anyhow) {
  check({{.shifted = true}, {.dtype = DType::kF16, .shifted = true, .b_by_columns = true}});
}

TEST_P(BatchInvariantGather, gathers_of_scaled_rows) {
  check({{.k = 256, .scale = ScaleMode::kRowwiseSharded},
         {.k = 256, .scale = ScaleMode::kRowwiseSharded, .fast_accum = true, .bias = true, .most = 620},
         {.k = 256, .scale = ScaleMode::kBlockwiseSharded, .most = 620}});
}

TEST_P(BatchInvariantGather, gathers_of_columns) {
  check({{.dim = 1},
         {.dtype = DType::kF16, .dim = 1, .bias = true, .b_by_columns = true},
         {.dtype = DType::kF32, .k = 83, .dim = 1}});
}

/// On GPUs with the vendor's library at hand, which must not run.
std::vector<JobCase> job_cases() {
  std::vector<JobCase> cases = test::cpu_cases({1, 2, 3, 4, 8});
  for (const JobCase& job : test::all_cases({1, 2, 4})) {
    if (job.vendor_products) cases.push_back(job);
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Ranks, BatchInvariant, ::testing::ValuesIn(job_cases()), test::job_name);
INSTANTIATE_TEST_SUITE_P(Ranks, BatchInvariantGather, ::testing::ValuesIn(job_cases()), test::job_name);

// That the tests above can fail: on GPUs what they look for is there without the setting. CPUs do not need
// it.
class WithoutInvariance : public BatchInvariant {};

TEST_P(WithoutInvariance, native_scatters_have_other_bits_on_gpus_alone) {
  Complaints complaints;
  Counts counts;
  check({{}, {.dtype = DType::kF16, .k = {40, 72}, .bias = true}}, test::quick_config(), complaints, counts);
  if (!is_on_gpu()) {
    EXPECT_EQ(complaints.text(), "");
    return;
  }
  EXPECT_GT(counts.native, 0);
  EXPECT_NE(complaints.text().find("native"), std::string::npos) << complaints.text();
}

INSTANTIATE_TEST_SUITE_P(Ranks, WithoutInvariance, ::testing::ValuesIn(test::exact_cases({2})),
                         test::job_name);

// A report does not hide that a product is slow.
TEST(BatchInvariantKernels, who_multiplies_is_said) {
  if (testing::num_test_gpus() == 0) GTEST_SKIP() << "needs a GPU";
  const Config config = invariant_config();
  const auto device = open_device({DeviceKind::kCuda, 0}, config).value();
  const auto runner_of = [&](const gemm::Problem& problem) {
    return std::string(gemm::plan(problem, *device).value().implementation());
  };
  EXPECT_EQ(runner_of({.m = 1, .n = 64, .k = 64, .in = DType::kBF16, .out = DType::kBF16}), "cuda/sm90");
  EXPECT_EQ(runner_of({.m = 700, .n = 64, .k = 64, .in = DType::kF16, .out = DType::kF16}), "cuda/sm90");
  EXPECT_EQ(runner_of({.m = 1, .n = 64, .k = 64, .in = DType::kBF16, .out = DType::kF32}), "cuda/reference");
  EXPECT_EQ(runner_of({.m = 1, .n = 64, .k = 63, .in = DType::kBF16, .out = DType::kBF16}), "cuda/reference");
  EXPECT_EQ(runner_of({.m = 1, .n = 64, .k = 64}), "cuda/reference");
}

// Each tile of a kernel's list by itself, of as many rows as all of them take.
TEST(BatchInvariantKernels, every_tile_gives_the_same_bits) {
  if (testing::num_test_gpus() == 0) GTEST_SKIP() << "needs a GPU";
  constexpr std::int64_t kRows = 256;
  constexpr std::int64_t kWidth = 1152;  // pairs of tiles of 64 and of 192 columns; the others end outside
  struct Family {
    const char* name;
    DType dtype;
    bool b_by_columns;
    std::vector<const char*> tiles;
  };
  const std::vector<Family> families = {
      {"bf16 t",
       DType::kBF16,
       true,
       {"256 2x1", "224 2x1", "208 2x1", "192 1x2", "112 2x1", "128 1x1", "64 1x2"}},
      {"bf16 n", DType::kBF16, false, {"256 2x1", "256 1x1", "224 2x1", "192 2x1", "128 2x1", "128 1x1"}},
      {"f16 t",
       DType::kF16,
       true,
       {"256 2x1", "224 2x1", "208 2x1", "192 1x2", "112 2x1", "128 1x1", "64 1x2"}},
      {"f16 n", DType::kF16, false, {"256 2x1", "256 1x1", "224 2x1", "192 2x1", "128 2x1", "128 1x1"}}};
  for (const Family& family : families) {
    std::vector<std::byte> first;
    for (const char* tile : family.tiles) {
      Config config = invariant_config();
      config.native_kernel = fmt::format("{} 128x{}", family.name, tile);
      SCOPED_TRACE(config.native_kernel);
      const auto device = open_device({DeviceKind::kCuda, 0}, config).value();
      const auto stream = device->create_stream().value();
      const Matrix a(*device, test::generated({kRows, 200}, family.dtype, 1), false);
      const Matrix b(*device, test::generated({200, kWidth}, family.dtype, 2), false, family.b_by_columns);
      const Guarded out(*device, Dims{kRows, kWidth}, family.dtype);
      const gemm::MmArgs args{.a = a.view, .b = b.view, .out = out.view(), .bias = {}};
      EXPECT_EQ(gemm::plan(gemm::problem_of(args).value(), *device).value().implementation(), "cuda/sm90");
      ASSERT_TRUE(gemm::mm(args, *stream));
      ASSERT_TRUE(stream->synchronize());
      out.download();
      if (first.empty()) first = out.bytes();
      EXPECT_TRUE(first == out.bytes());
    }
  }
}

}  // namespace
}  // namespace tandem
