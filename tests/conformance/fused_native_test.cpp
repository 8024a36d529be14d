// Native all-gather + matmul at sizes for which a GPU has kernels, on CPUs with smaller ones: problem after
// problem of random sizes, without a look at the device, under delays of random ranks, between ops of other
// algorithms. Every output bit by bit what gemm::async_input_mm() makes of operands that are all there; with
// a bias, as close to float64 as one rounding.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <random>
#include <tandem/gemm/async_input_mm.hpp>
#include <thread>
#include <vector>

#include "conformance/fused_harness.hpp"
#include "support/simulated.hpp"

namespace tandem {
namespace {

using test::Complaints;
using test::Guarded;
using test::RankContextOfTest;

int num_ops(const Device& device) {
  return testing::is_simulated(device) ? 20 : 60;
}

/// The sizes of a test, by what multiplies.
struct Scale {
  std::int64_t fewest_rows, most_rows, k;
  std::vector<std::int64_t> columns;
};
/// Of a GPU: tiles have rows of several ranks, some of which may have none. K ends inside a step.
Scale few_rows() {
  return {.fewest_rows = 1, .most_rows = 512, .k = 200, .columns = {264, 512, 40}};
}
Scale scale_of(DeviceKind kind) {
  if (kind == DeviceKind::kCpu) return {.fewest_rows = 64, .most_rows = 170, .k = 24, .columns = {9, 16, 5}};
  return {.fewest_rows = 512, .most_rows = 2300, .k = 192, .columns = {264, 512, 40}};
}

/// One op: rows [first, first + rows) of the source are what is gathered.
struct Op {
  std::int64_t first = 0;
  std::int64_t rows = 0;
  std::int64_t plan_n = 0;
  std::vector<std::size_t> b;
  int idle = -1;  ///< a rank that has nothing to multiply
  bool keeps_gathered = false;
  bool has_bias = false;
  Algorithm algorithm = Algorithm::kNative;
  std::vector<Guarded> out;
  std::unique_ptr<Guarded> gathered;
};

class Workbench {
 public:
  Workbench(RankContextOfTest& rank, DType dtype, Scale scale)
      : rank_(rank),
        dtype_(dtype),
        scale_(std::move(scale)),
        source_(rank.device, test::dense({2 * scale_.most_rows, scale_.k}),
                test::generated({2 * scale_.most_rows, scale_.k}, dtype, 0)),
        signal_(rank.device, Dims{1}, DType::kU32) {
    for (std::size_t i = 0; i < scale_.columns.size(); ++i) {
      // One row-major, the others column-major.
      const std::int64_t n = scale_.columns[i];
      const Layout layout = i == 1 ? test::dense({scale_.k, n}) : Layout{{scale_.k, n}, {1, scale_.k}};
      b_.push_back(std::make_unique<Guarded>(rank.device, layout,
                                             test::generated(layout.sizes, dtype, static_cast<int>(i) + 1)));
      bias_.push_back(std::make_unique<Guarded>(rank.device, test::dense({n}),
                                                test::generated({n}, dtype, static_cast<int>(i) + 10)));
    }
  }

  /// The same on every rank.
  Op make_op(std::mt19937& random) {
    const auto below = [&](std::int64_t n) {
      return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(n));
    };
    Op op;
    op.rows = scale_.fewest_rows + below(scale_.most_rows - scale_.fewest_rows);
    const int world = rank_.group.size();
    const std::int64_t whole_tiles = std::int64_t{128} * world;
    const std::int64_t kind = below(3);
    if (kind == 0) op.rows = op.rows / 512 * 512 + (op.rows < 512 ? op.rows : 0);  // whole pieces
    if (kind == 1 && scale_.most_rows >= whole_tiles) {
      op.rows = whole_tiles * (1 + below(scale_.most_rows / whole_tiles));
      op.rows = std::max(op.rows, (scale_.fewest_rows + whole_tiles - 1) / whole_tiles * whole_tiles);
    }
    if (scale_.fewest_rows < world && below(4) == 0) op.rows = 1 + below(2 * world);
    // The wider, the fewer shards are wanted at once, and so come in pieces.
    if (below(4) > 0) op.plan_n = std::int64_t{3584} << below(3);
    op.first = below(scale_.most_rows);
    if (below(5) == 0) op.idle = static_cast<int>(below(world));
    for (std::size_t i = 0; i < b_.size(); ++i) {
      if (below(2) == 0) op.b.push_back(i);
    }
    if (op.b.empty()) op.b.push_back(0);
    op.keeps_gathered = below(4) == 0;
    op.has_bias = below(4) == 0;
    const std::int64_t other = below(5);
    if (other == 0) op.algorithm = Algorithm::kPipelined;
    if (other == 1) op.algorithm = Algorithm::kSerial;
    for (const std::size_t i : op.b)
      op.out.emplace_back(rank_.device, Dims{op.rows, scale_.columns[i]}, dtype_);
    if (op.keeps_gathered)
      op.gathered = std::make_unique<Guarded>(rank_.device, Dims{op.rows, scale_.k}, dtype_);
    return op;
  }

  Result<void> run(const Op& op) {
    const Shard mine = shard_of(op.rows, rank_.group.size(), rank_.group.rank());
    std::vector<TensorView> b, bias, out;
    for (const std::size_t i : op.b) b.push_back(b_[i]->view());
    for (const std::size_t i : op.b) {
      if (op.has_bias) bias.push_back(bias_[i]->view());
    }
    for (const Guarded& tensor : op.out) out.push_back(tensor.view());
    if (op.idle == rank_.group.rank()) {
      for (TensorView& view : b) view = view.narrow(1, 0, 0);
      for (TensorView& view : bias) view = view.narrow(0, 0, 0);
      for (TensorView& view : out) view = view.narrow(1, 0, 0);
    }
    AllGatherMatmulArgs args{.a = source_.view().narrow(0, op.first + mine.offset, mine.size),
                             .b = b,
                             .gather_size = op.rows,
                             .out = out,
                             .bias = bias,
                             .algorithm = op.algorithm,
                             .plan_n = op.plan_n};
    if (op.gathered) args.gathered = op.gathered->view();
    const auto report = fused_all_gather_matmul(args, rank_.group, rank_.stream);
    if (!report) return tl::unexpected(report.error());
    if (report->reason.find("by mm") != std::string_view::npos)
      return tl::unexpected(Error(ErrorCode::kInternal, std::string(report->reason)));
    return {};
  }

  /// Native outputs have to be the kernels' own bits; the others are checked elsewhere.
  Result<void> compare(Op& op, const std::string& who, Complaints& complaints) {
    const TensorView a = source_.view().narrow(0, op.first, op.rows);
    if (op.gathered) {
      Guarded all(rank_.device, Dims{op.rows, scale_.k}, dtype_);
      if (auto copied = rank_.stream.copy(a, all.view()); !copied) return copied;
      if (auto done = rank_.stream.synchronize(); !done) return done;
      compare(*op.gathered, all, who + " gathered", complaints);
    }
    if (op.algorithm != Algorithm::kNative || op.idle == rank_.group.rank()) return {};
    for (std::size_t i = 0; i < op.b.size(); ++i) {
      if (op.has_bias) {
        compare_with_float64(op, i, fmt::format("{} out[{}]", who, i), complaints);
        continue;
      }
      Guarded reference(rank_.device, Dims{op.rows, scale_.columns[op.b[i]]}, dtype_);
      auto done = gemm::async_input_mm({.a = a,
                                        .b = b_[op.b[i]]->view(),
                                        .out = reference.view(),
                                        .a_chunk_signals = signal_.view(),
                                        .complete = gemm::CompleteChunks{a, 0, 1}},
                                       rank_.stream);
      if (!done) return done;
      if (done = rank_.stream.synchronize(); !done) return done;
      compare(op.out[i], reference, fmt::format("{} out[{}]", who, i), complaints);
    }
    return {};
  }

 private:
  static void compare(Guarded& got, Guarded& need, const std::string& who, Complaints& complaints) {
    got.download();
    need.download();
    harness::Wrong wrong;
    if (got.bytes() != need.bytes()) wrong.add("other bits");
    complaints.add(who, got, wrong);
  }

  /// Some elements.
  void compare_with_float64(Op& op, std::size_t i, const std::string& who, Complaints& complaints) {
    const Guarded& got = op.out[i];
    got.download();
    source_.download();
    b_[op.b[i]]->download();
    bias_[op.b[i]]->download();
    const std::int64_t n = scale_.columns[op.b[i]];
    const harness::ProductReference reference({.a = source_.host().narrow(0, op.first, op.rows),
                                               .b = b_[op.b[i]]->host(),
                                               .bias = bias_[op.b[i]]->host()});
    std::mt19937 random(1);
    harness::Wrong wrong;
    for (int sample = 0; sample < 100; ++sample) {
      const auto row = static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(op.rows));
      const auto column = static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(n));
      const double need = reference.sum_at(row, column).value;
      const double bound = 1e-6 * static_cast<double>(scale_.k) + harness::rounding_error(dtype_, need);
      const double off = std::abs(got.at(row * n + column) - need);
      if (!(off <= bound)) wrong.add(fmt::format("{}, {} is off by {}", row, column, off));
    }
    complaints.add(who, got, wrong);
  }

  RankContextOfTest& rank_;
  DType dtype_;
  Scale scale_;
  Guarded source_, signal_;
  std::vector<std::unique_ptr<Guarded>> b_, bias_;
};

Result<void> hold_a_moment(std::mt19937& own, Stream& stream) {
  if (own() % 4 == 0) std::this_thread::sleep_for(std::chrono::microseconds(own() % 400));
  if (own() % 4 != 0) return {};
  return stream.sleep(std::chrono::microseconds(own() % 300));
}

void run_random_problems(const testing::RankCase& ranks, const Scale& scale,
                         const std::optional<int>& native_pieces, std::chrono::microseconds link = {}) {
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    Complaints complaints;
    Config config;
    config.log_level = LogLevel::kOff;
    config.native_pieces = native_pieces;
    config.link_delay = link;
    test::on_ranks({.ranks = ranks}, config, complaints, [&](RankContextOfTest& rank) -> Result<void> {
      Workbench bench(rank, dtype, scale);
      std::mt19937 same(17);
      std::mt19937 own(static_cast<unsigned>(100 + rank.group.rank()));
      std::vector<Op> ops;
      for (int i = 0; i < num_ops(rank.device); ++i) ops.push_back(bench.make_op(same));
      for (const Op& op : ops) {
        if (auto ok = hold_a_moment(own, rank.stream); !ok) return ok;
        if (auto ok = bench.run(op); !ok) return ok;
      }
      if (auto done = rank.stream.synchronize(); !done) return done;
      for (std::size_t i = 0; i < ops.size(); ++i) {
        const std::string who = fmt::format("rank {} op {} ({} rows)", rank.group.rank(), i, ops[i].rows);
        if (auto ok = bench.compare(ops[i], who, complaints); !ok) return ok;
      }
      return {};
    });
    EXPECT_EQ(complaints.text(), "") << to_string(dtype);
  }
}

class FusedNative : public ::testing::TestWithParam<testing::RankCase> {};

TEST_P(FusedNative, random_problems_one_behind_the_other) {
  run_random_problems(GetParam(), scale_of(GetParam().placement.kind), {});
}

// Shards are cut in chunks, each of which counts as arrived behind its part of the link's time. Together with
// the test above these are more than 1000 schedules.
TEST_P(FusedNative, random_problems_over_a_link) {
  if (GetParam().placement.kind != DeviceKind::kCpu) GTEST_SKIP() << "copies of GPUs have a link";
  for (const int link_us : {20, 300}) {
    run_random_problems(GetParam(), {.fewest_rows = 64, .most_rows = 1200, .k = 24, .columns = {9, 16, 5}},
                        {}, std::chrono::microseconds(link_us));
  }
}

// The others get theirs by copies beside the products that send.
TEST_P(FusedNative, sent_in_pieces_to_one_rank) {
  if (GetParam().size == 1 || GetParam().placement.kind == DeviceKind::kCpu)
    GTEST_SKIP() << "nothing is sent in pieces";
  run_random_problems(GetParam(), scale_of(GetParam().placement.kind), 1);
}

// One rank behind the other where products take more than a wave.
TEST_P(FusedNative, sent_in_pieces_to_every_rank) {
  if (GetParam().size <= 2 || GetParam().placement.kind == DeviceKind::kCpu)
    GTEST_SKIP() << "nothing is sent in pieces, or to one rank only";
  run_random_problems(GetParam(), scale_of(GetParam().placement.kind), GetParam().size - 1);
}

TEST_P(FusedNative, few_rows_come_together) {
  if (GetParam().size == 1 || GetParam().placement.kind == DeviceKind::kCpu)
    GTEST_SKIP() << "nothing is sent in pieces";
  run_random_problems(GetParam(), few_rows(), {});
}

// All others wait for it, and say for whom and for what; what they have on their GPUs stays usable.
TEST_P(FusedNative, a_rank_that_skips_an_op_is_named) {
  const int world = GetParam().size;
  if (world == 1) GTEST_SKIP() << "nobody to wait for";
  Config config;
  config.log_level = LogLevel::kOff;
  config.op_timeout = std::chrono::milliseconds(600);
  std::atomic<int> have_heard = 0;
  Complaints complaints;
  test::on_ranks({.ranks = GetParam()}, config, complaints, [&](RankContextOfTest& rank) -> Result<void> {
    Workbench bench(rank, DType::kBF16, scale_of(rank.device.id().kind));
    std::mt19937 same(3);
    Op op = bench.make_op(same);
    op.algorithm = Algorithm::kNative;
    op.idle = -1;
    if (auto ok = bench.run(op); !ok) return ok;
    if (auto done = rank.stream.synchronize(); !done) return done;
    if (rank.group.rank() == world - 1) {
      const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
      while (have_heard < world - 1 && std::chrono::steady_clock::now() < end)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      return {};
    }
    auto done = bench.run(op);
    if (done) done = rank.stream.synchronize();
    ++have_heard;
    const std::string text = done ? "nothing" : done.error().to_string();
    const bool is_named = text.find(fmt::format("for rank {}", world - 1)) != std::string::npos;
    // Hosts of ranks that share a GPU meet before they enqueue anything, so no kernel waits for a chunk.
    const bool waits_for_chunk = GetParam().placement.one_gpu_each;
    if (!is_named || (waits_for_chunk && text.find("chunk") == std::string::npos))
      complaints.add(fmt::format("rank {} says: {}", rank.group.rank(), text));
    const auto other = rank.device.create_stream();
    if (!other) return tl::unexpected(other.error());
    const Guarded words(rank.device, Dims{8}, DType::kU32);
    if (auto ok = (*other)->memset32(words.view(), 0, 1, 8); !ok) return ok;
    return (*other)->synchronize();
  });
  EXPECT_EQ(complaints.text(), "");
}

INSTANTIATE_TEST_SUITE_P(Ranks, FusedNative, ::testing::ValuesIn(testing::rank_cases({1, 2, 3, 4, 8})),
                         testing::case_name);

}  // namespace
}  // namespace tandem
