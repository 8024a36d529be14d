#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "conformance/fused_harness.hpp"
#include "harness/operands.hpp"
#include "harness/problem.hpp"
#include "harness/reference.hpp"

// fused_all_gather_matmul against float64, for every backend x algorithm x dtype x dim x number of ranks:
// outputs poisoned before, guard bytes around every buffer, the same bits from every algorithm (unless a
// vendor's product adds in an order of its own), pads at rest afterwards.

namespace tandem {
namespace {

using harness::Problem;
using test::Complaints;
using test::Guarded;
using test::JobCase;
using test::RankContextOfTest;

struct Case {
  Dims sizes;  ///< of all of a
  int dim = 0;
  DType dtype = DType::kF32;
  std::vector<std::int64_t> columns = {5};  ///< of each rank's part of each b; the last rank's has one less
  bool bias = false;
  bool gathered = false;
  bool spread = false;  ///< no operand is contiguous
  bool in_place = false;

  [[nodiscard]] Problem problem(int world) const;
};

Problem Case::problem(int world) const {
  Problem all;
  all.op = harness::Op::kAllGatherMatmul;
  all.a = sizes;
  for (const std::int64_t n : columns)
    all.n.push_back(std::max<std::int64_t>(0, n * world - (world > 1 ? 1 : 0)));
  all.dtype = dtype;
  all.dim = dim;
  all.ranks = world;
  all.bias = bias;
  all.gathered = gathered;
  return all;
}

/// The problem as the tool takes it, and what only the test does with it.
std::string to_text(const Case& c, int world, Algorithm algorithm) {
  Problem problem = c.problem(world);
  problem.algorithm = algorithm;
  return "--problem " + to_line(problem) + (c.spread ? " (spread out)" : "") +
         (c.in_place ? " (in place)" : "");
}

/// One rank's tensors of a case.
struct Operands {
  Operands(RankContextOfTest& rank, const Case& c)
      : problem(c.problem(rank.group.size())),
        tensors(problem, harness::GeneratedTensors(problem), rank.group.rank(),
                {rank.device, harness::HostImage::kAlways, c.spread ? 2 : 1}),
        reference(problem, harness::GeneratedTensors(problem)),
        args(tensors.gather_args()) {}

  Problem problem;
  harness::RankOperands tensors;
  harness::Reference reference;
  AllGatherMatmulArgs args;
};

/// Complains where a rank's out_i is not what float64 says.
void check_output(const Operands& in, const Guarded& out, int i, int rank, const std::string& who,
                  Complaints& complaints) {
  harness::Wrong wrong;
  out.download();
  in.reference.compare(i, window_of_result(in.problem, i, rank), out.host(), wrong);
  complaints.add(who + ": out[" + std::to_string(i) + "]", out, wrong);
}

/// Puts a into symmetric memory.
Result<void> move_to_symmetric(RankContextOfTest& rank, const Case& c, Operands& in, Tensor& block) {
  Dims largest = c.sizes;
  largest[c.dim] = shard_stride(c.sizes[c.dim], rank.group.size());
  auto made = symm::empty({numel(largest) + 3}, c.dtype, rank.device);
  if (!made) return tl::unexpected(made.error());
  block = *std::move(made);
  auto handle = symm::rendezvous(block, rank.group);
  if (!handle) return tl::unexpected(handle.error());
  // Three elements behind the start: the place must be found, not guessed.
  const Layout layout = [&] {
    Dims moved = in.args.a.sizes;
    if (c.dim == moved.size() - 1) return test::dense(moved);
    moved.insert(0, moved.erase(c.dim));
    Dims strides = contiguous_strides(moved);
    strides.insert(c.dim, strides.erase(0));
    return Layout{in.args.a.sizes, strides};
  }();
  const TensorView place{block.view().narrow(0, 3, 1).data, layout.sizes, layout.strides, c.dtype,
                         rank.device.id()};
  if (auto copied = rank.stream.copy(in.args.a, place); !copied) return copied;
  if (auto done = rank.stream.synchronize(); !done) return done;
  in.args.a = place;
  in.args.a_handle = *handle;
  return {};
}

/// Whether native has to take the case on a CPU: rows are gathered, and every rank has some.
bool takes_native(const Case& c, int world) {
  const bool all_have_rows =
      numel(test::with_last(c.sizes, 1)) > 0 && shard_of(c.sizes[c.dim], world, world - 1).size > 0;
  return c.dim < c.sizes.size() - 1 && all_have_rows;
}

/// Whether to run this call: everything but native where it is refused, with a reason, as it has to be.
bool is_to_run(RankContextOfTest& rank, const Case& c, const AllGatherMatmulArgs& args,
               const std::string& who, Complaints& complaints) {
  if (args.algorithm != Algorithm::kNative) return true;
  const Support support = can_run(args, rank.group, rank.stream);
  const bool is_on_cpu = rank.device.id().kind == DeviceKind::kCpu;
  if (is_on_cpu && support.ok != takes_native(c, rank.group.size()))
    complaints.add(who + (support ? ": can run" : ": " + support.why_not));
  return support.ok;
}

/// Runs one case by each algorithm on one rank and holds the results against the reference and, if
/// `same_bits`, each other.
Result<void> run_case(RankContextOfTest& rank, const Case& c, bool same_bits, Complaints& complaints) {
  Operands in(rank, c);
  Tensor block;
  if (c.in_place) {
    if (auto moved = move_to_symmetric(rank, c, in, block); !moved) return moved;
  }
  std::vector<std::vector<std::byte>> bits;
  for (const Algorithm algorithm : {Algorithm::kSerial, Algorithm::kPipelined, Algorithm::kNative}) {
    in.args.algorithm = algorithm;
    const std::string who =
        to_text(c, rank.group.size(), algorithm) + ", rank " + std::to_string(rank.group.rank());
    std::deque<Guarded> out;
    std::vector<TensorView> out_views;
    for (int i = 0; i < static_cast<int>(c.columns.size()); ++i) {
      const auto layout = output_layout(in.args, i);
      if (!layout) return tl::unexpected(layout.error());
      out.emplace_back(rank.device, *layout, c.dtype);
      out_views.push_back(out.back().view());
    }
    in.args.out = out_views;
    std::optional<Guarded> gathered;
    if (c.gathered) {
      const auto layout = gathered_layout(in.args);
      if (!layout) return tl::unexpected(layout.error());
      gathered.emplace(rank.device, *layout, c.dtype);
      in.args.gathered = gathered->view();
    }
    if (!is_to_run(rank, c, in.args, who, complaints)) continue;
    const auto report = fused_all_gather_matmul(in.args, rank.group, rank.stream);
    if (!report) return tl::unexpected(Error(report.error().code(), who + ": " + report.error().text()));
    if (report->algorithm != algorithm)
      complaints.add(who + ": ran " + std::string(to_string(report->algorithm)));
    if (auto done = rank.stream.synchronize(); !done) return done;

    for (std::size_t i = 0; i < out.size(); ++i) {
      check_output(in, out[i], static_cast<int>(i), rank.group.rank(), who, complaints);
      const std::size_t slot = i;
      if (algorithm == Algorithm::kSerial) {
        bits.push_back(out[i].bytes());
      } else if (same_bits && bits[slot] != out[i].bytes()) {
        complaints.add(who + ": out[" + std::to_string(i) + "] has other bits than by serial");
      }
    }
    if (gathered) {
      harness::Wrong wrong;
      gathered->download();
      in.reference.compare_gathered(gathered->host(), wrong);
      complaints.add(who, *gathered, wrong);
    }
  }
  return {};
}

void run_all(const JobCase& job, const std::vector<Case>& cases) {
  Complaints complaints;
  test::on_ranks(job, test::quick_config(), complaints, [&](RankContextOfTest& rank) -> Result<void> {
    for (const Case& c : cases) {
      if (auto ran = run_case(rank, c, !job.vendor_products, complaints); !ran) return ran;
    }
    return test::check_pads(rank, complaints);
  });
  EXPECT_EQ(complaints.text(), "");
}

class AllGatherMatmul : public ::testing::TestWithParam<JobCase> {};

TEST_P(AllGatherMatmul, every_dtype_and_dim) {
  std::vector<Case> cases;
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    for (const Dims& sizes : {Dims{16, 24}, Dims{8, 16, 24}, Dims{2, 8, 8, 16}}) {
      for (int dim = 0; dim < sizes.size(); ++dim) {
        cases.push_back({.sizes = sizes, .dim = dim, .dtype = dtype, .gathered = dim % 2 == 0});
      }
    }
  }
  run_all(GetParam(), cases);
}

TEST_P(AllGatherMatmul, odd_and_empty_sizes) {
  std::vector<Case> cases;
  for (std::int64_t m = 0; m < 10; ++m) {
    for (const std::int64_t k : {0, 1, 7}) {
      cases.push_back({.sizes = {m, k},
                       .dim = 0,
                       .dtype = DType::kBF16,
                       .columns = {3},
                       .bias = m % 2 == 0,
                       .gathered = m % 3 == 0});
      cases.push_back({.sizes = {k, m},
                       .dim = 1,
                       .dtype = DType::kF32,
                       .columns = {4},
                       .bias = m % 2 == 1,
                       .gathered = m % 3 == 1});
      cases.push_back({.sizes = {3, m, k}, .dim = 1, .dtype = DType::kF16, .columns = {0, 2}});
    }
  }
  run_all(GetParam(), cases);
}

TEST_P(AllGatherMatmul, several_b_bias_strides_and_symmetric_a) {
  std::vector<Case> cases;
  for (int dim = 0; dim < 3; ++dim) {
    for (const bool in_place : {false, true}) {
      cases.push_back({.sizes = {11, 13, 17},
                       .dim = dim,
                       .dtype = DType::kBF16,
                       .columns = {9, 1, 20},
                       .bias = true,
                       .gathered = true,
                       .spread = true,
                       .in_place = in_place});
    }
  }
  run_all(GetParam(), cases);
}

// Shards of whole pieces of 512 rows, of a ragged last one, and of one piece; b in columns.
TEST_P(AllGatherMatmul, shards_of_several_pieces) {
  const int world = GetParam().ranks.size;
  std::vector<Case> cases;
  for (const std::int64_t missing : {0, 1, 3}) {
    cases.push_back({.sizes = {1024 * world - missing, 8},
                     .dim = 0,
                     .dtype = DType::kBF16,
                     .columns = {3, 1},
                     .gathered = missing == 1});
  }
  cases.push_back({.sizes = {513 * world, 4}, .dim = 0, .dtype = DType::kF32, .columns = {2}});
  cases.push_back({.sizes = {256 * world, 2, 4}, .dim = 0, .dtype = DType::kF16, .columns = {2}});
  cases.push_back({.sizes = {4, 128 * world - 1, 4}, .dim = 1, .dtype = DType::kF16, .columns = {2}});
  run_all(GetParam(), cases);
}

// What native leaves to plain products is told, and the same on the other side of it.
TEST_P(AllGatherMatmul, native_says_what_it_does_by_mm) {
  if (!GetParam().is_on_cpu()) GTEST_SKIP() << "fewer rows than a GPU's kernels are for";
  Complaints complaints;
  test::on_ranks(GetParam(), test::quick_config(), complaints, [&](RankContextOfTest& rank) -> Result<void> {
    // Only rank 0 has a b with holes; the others move and await the same.
    const bool holes = rank.group.rank() == 0;
    const Case c{.sizes = {8 * rank.group.size(), 6}, .columns = {5, 4}, .bias = true, .spread = holes};
    Operands in(rank, c);
    in.args.algorithm = Algorithm::kNative;
    Guarded first(rank.device, output_layout(in.args, 0).value(), c.dtype);
    Guarded second(rank.device, output_layout(in.args, 1).value(), c.dtype);
    const std::vector<TensorView> outs = {first.view(), second.view()};
    in.args.out = outs;
    const auto report = fused_all_gather_matmul(in.args, rank.group, rank.stream);
    if (!report) return tl::unexpected(report.error());
    const std::string need = holes ? "asked for; a is copied once for its strides; out[0] by mm: b has holes"
                                     "; out[1] by mm: b has holes"
                                   : "asked for";
    if (report->reason != need) complaints.add("the reason is " + std::string(report->reason));
    if (auto done = rank.stream.synchronize(); !done) return done;
    const std::string who = to_text(c, rank.group.size(), Algorithm::kNative);
    check_output(in, first, 0, rank.group.rank(), who, complaints);
    check_output(in, second, 1, rank.group.rank(), who, complaints);
    return {};
  });
  EXPECT_EQ(complaints.text(), "");
}

INSTANTIATE_TEST_SUITE_P(Ranks, AllGatherMatmul, ::testing::ValuesIn(test::all_cases({1, 2, 3, 4, 8})),
                         test::job_name);

}  // namespace
}  // namespace tandem
