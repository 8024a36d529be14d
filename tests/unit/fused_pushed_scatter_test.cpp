// Pipelined scatters and all-reduces whose ranks push their partials, and all-reduces in rounds, by the same
// programs on CPUs as on GPUs, where a public call runs them. Small whole numbers: every sum is exact,
// whatever its order. Fractions are for what is rounded where, and added in which order.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "conformance/fused_harness.hpp"
#include "fused/call/run_op.hpp"
#include "fused/scatter/plan.hpp"
#include "fused/scatter/pushed.hpp"

namespace tandem {
namespace {

using coll::ReduceOp;
using test::Complaints;
using test::Guarded;
using test::JobCase;
using test::RankContextOfTest;

struct Case {
  Dims sizes;  ///< of the product
  int num_products = 1;
  ReduceOp op = ReduceOp::kSum;
  bool bias = false;
  bool keeps_product = false;
  DType dtype = DType::kBF16;
  bool to_all = false;         ///< an all-reduce
  bool in_rounds = false;      ///< behind barriers, of an all-reduce
  bool has_fractions = false;  ///< sums are not exact

  [[nodiscard]] int dim() const { return to_all ? 0 : sizes.size() - 2; }
  [[nodiscard]] std::int64_t k(int j) const { return j == 1 ? 0 : 3 + j; }  ///< one is empty
  [[nodiscard]] std::string text(int chunks, int world) const {
    return fmt::format("{}{} of {} products, {}{}{}, {} {}, {} ranks", to_all ? "all of " : "",
                       to_string(sizes), num_products, to_string(op), bias ? ", bias" : "",
                       keeps_product ? ", kept" : "", chunks, in_rounds ? "rounds" : "chunks", world);
  }
};

double a_at(int rank, int j, std::int64_t row, std::int64_t i) {
  return static_cast<double>((rank * 7 + j * 3 + row * 5 + i * 2) % 3 - 1);
}
double b_at(int rank, int j, std::int64_t i, std::int64_t column) {
  return static_cast<double>((rank * 5 + j + i + column * 11) % 3 - 1);
}
double bias_at(std::int64_t column) {
  return static_cast<double>(column % 5 - 2);
}

/// One rank's tensors of a case.
class Call {
 public:
  Call(RankContextOfTest& rank, const Case& c)
      : rank_(rank),
        case_(c),
        bias_(rank.device, Dims{c.sizes.back()}, c.dtype),
        out_(rank.device, out_sizes(), c.dtype),
        product_(rank.device, c.sizes, c.dtype) {
    const int me = rank.group.rank();
    const auto element = [&](double whole, std::int64_t idx) {
      return c.has_fractions ? std::sin(static_cast<double>(idx + 7 * me)) : whole;
    };
    for (int j = 0; j < c.num_products; ++j) {
      const std::int64_t k = c.k(j);
      const std::int64_t n = c.sizes.back();
      tensors_.emplace_back(rank.device, test::with_last(c.sizes, k), c.dtype);
      tensors_.back().fill([&](std::int64_t idx) { return element(a_at(me, j, idx / k, idx % k), idx); });
      a_.push_back(tensors_.back().view());
      tensors_.emplace_back(rank.device, Dims{k, n}, c.dtype);
      tensors_.back().fill([&](std::int64_t idx) { return element(b_at(me, j, idx / n, idx % n), idx); });
      b_.push_back(tensors_.back().view());
    }
    bias_.fill(bias_at);
  }

  /// Without a wait. No chunks: by `serial`.
  [[nodiscard]] Result<OpReport> run(int chunks) const {
    return case_.to_all ? run(MatmulAllReduceArgs(), chunks)
                        : run(MatmulReduceScatterArgs{.scatter_dim = case_.dim()}, chunks);
  }

  [[nodiscard]] std::vector<std::byte> out_bytes() const {
    out_.download();
    return out_.bytes();
  }

  void check(const std::string& who, Complaints& complaints) const {
    compare(out_, own_part(), who + ": out", complaints, [&](std::int64_t row, std::int64_t column) {
      double sum = 0;
      for (int q = 0; q < rank_.group.size(); ++q) sum += product_at(q, row, column);
      if (case_.op == ReduceOp::kAvg) sum /= rank_.group.size();
      return sum + (case_.bias ? bias_at(column) : 0);
    });
    if (!case_.keeps_product) return;
    compare(
        product_, {0, case_.sizes[case_.dim()]}, who + ": product", complaints,
        [&](std::int64_t row, std::int64_t column) { return product_at(rank_.group.rank(), row, column); });
  }

 private:
  template <class Args>
  [[nodiscard]] Result<OpReport> run(Args args, int chunks) const {
    args.a = a_;
    args.b = b_;
    args.reduce_op = case_.op;
    args.out = out_.view();
    args.algorithm = chunks == 0 ? Algorithm::kSerial : Algorithm::kPipelined;
    if (case_.bias) args.bias = bias_.view();
    if (case_.keeps_product) args.product = product_.view();
    auto checked = fused::check(args, rank_.group, rank_.stream);
    if (checked) (case_.in_rounds ? checked->problem.rounds : checked->problem.push_chunks) = chunks;
    return fused::run_op(std::move(checked), rank_.group, rank_.stream);
  }
  /// Of the scattered dim, that out has.
  [[nodiscard]] Shard own_part() const {
    const std::int64_t total = case_.sizes[case_.dim()];
    return case_.to_all ? Shard{0, total} : shard_of(total, rank_.group.size(), rank_.group.rank());
  }
  [[nodiscard]] Dims out_sizes() const {
    Dims sizes = case_.sizes;
    sizes[case_.dim()] = own_part().size;
    return sizes;
  }
  [[nodiscard]] double product_at(int rank, std::int64_t row, std::int64_t column) const {
    double sum = 0;
    for (int j = 0; j < case_.num_products; ++j) {
      for (std::int64_t i = 0; i < case_.k(j); ++i) sum += a_at(rank, j, row, i) * b_at(rank, j, i, column);
    }
    return sum;
  }
  template <class Need>
  void compare(const Guarded& got, const Shard& part, const std::string& who, Complaints& complaints,
               Need need) const {
    got.download();
    if (!got.guards_are_whole()) complaints.add(who + ": a guard byte was written");
    const std::int64_t n = case_.sizes.back();
    for (std::int64_t idx = 0; idx < got.view().numel(); ++idx) {
      const std::int64_t line = idx / n;
      const std::int64_t row = line / part.size * case_.sizes[case_.dim()] + part.offset + line % part.size;
      const double right = need(row, idx % n);
      // Exact, but for a mean over ranks whose number is no power of two.
      if (std::abs(got.at(idx) - right) <= (case_.op == ReduceOp::kAvg ? std::abs(right) / 128 + 1e-6 : 0))
        continue;
      return complaints.add(fmt::format("{}: element {} is {}, need {}", who, idx, got.at(idx), right));
    }
  }

  RankContextOfTest& rank_;
  const Case& case_;
  std::deque<Guarded> tensors_;
  std::vector<TensorView> a_, b_;
  Guarded bias_, out_, product_;
};

/// Every `step`th.
std::vector<Case> every_case(std::size_t step) {
  std::vector<Case> cases;
  for (const Dims& sizes : {Dims{37, 12}, Dims{1, 16, 7}, Dims{2, 9, 8}, Dims{3, 24}, Dims{64, 8}}) {
    for (const int num_products : {1, 3}) {
      for (unsigned options = 0; options < 8; ++options) {
        cases.push_back({.sizes = sizes,
                         .num_products = num_products,
                         .op = (options & 1U) != 0 ? ReduceOp::kAvg : ReduceOp::kSum,
                         .bias = (options & 2U) != 0,
                         .keeps_product = (options & 4U) != 0,
                         .dtype = options % 3 == 0 ? DType::kF32 : DType::kBF16});
      }
    }
  }
  const std::size_t num_scatters = cases.size();
  for (const bool in_rounds : {false, true}) {
    for (std::size_t i = 0; i < num_scatters; ++i) {
      Case& one = cases.emplace_back(Case(cases[i]));
      one.to_all = true;
      one.in_rounds = in_rounds;
    }
  }
  std::vector<Case> taken;
  for (std::size_t i = 0; i < cases.size(); i += step) taken.push_back(cases[i]);
  return taken;
}

class FusedPushedScatter : public ::testing::TestWithParam<JobCase> {};

TEST_P(FusedPushedScatter, in_any_number_of_chunks) {
  // Conformance tests run many more on GPUs.
  const std::vector<Case> cases = every_case(GetParam().is_on_cpu() ? 1 : 9);
  Complaints complaints;
  test::on_ranks(GetParam(), test::quick_config(), complaints, [&](RankContextOfTest& rank) -> Result<void> {
    for (const Case& c : cases) {
      if (c.in_rounds && !GetParam().is_on_cpu()) continue;  // GPUs push all of these
      const Call call(rank, c);
      for (const int chunks : {1, 2, 3, 8}) {
        const std::string who =
            fmt::format("{}, rank {}", c.text(chunks, rank.group.size()), rank.group.rank());
        const auto report = call.run(chunks);
        if (!report) return tl::unexpected(Error(report.error().code(), who + ": " + report.error().text()));
        const std::string need = !c.in_rounds ? "ranks push partials"
                                 : chunks > 1 ? fmt::format("given to all in {} rounds", chunks)
                                              : std::string();
        if (report->reason.find(need) == std::string_view::npos)
          complaints.add(who + ": " + std::string(report->reason));
        if (auto done = rank.stream.synchronize(); !done) return done;
        call.check(who, complaints);
      }
    }
    return check_pads(rank, complaints);
  });
  EXPECT_EQ(complaints.text(), "");
}

/// Calls by any number of chunks whose out has other bits than that of `serial`.
int count_other_bits(const JobCase& job, bool batch_invariant) {
  Config config = test::quick_config();
  config.batch_invariant = batch_invariant;
  std::atomic<int> count = 0;
  Complaints complaints;
  test::on_ranks(job, config, complaints, [&](RankContextOfTest& rank) -> Result<void> {
    // In f32 the order of sums shows, which roundings to bf16 hide.
    for (const auto& [num_products, dtype] : {std::pair(1, DType::kF32), std::pair(3, DType::kBF16)}) {
      for (const bool to_all : {false, true}) {
        const Case c{.sizes = {64, 24},
                     .num_products = num_products,
                     .dtype = dtype,
                     .to_all = to_all,
                     .has_fractions = true};
        const Call call(rank, c);
        std::vector<std::byte> serial;
        const std::vector<int> some = {0, 3};  // simulated GPUs are slow
        const std::vector<int> all = {0, 1, 2, 3, 8};
        for (const int chunks : job.is_on_cpu() ? all : some) {
          if (const auto report = call.run(chunks); !report) return tl::unexpected(report.error());
          if (auto done = rank.stream.synchronize(); !done) return done;
          if (chunks == 0) serial = call.out_bytes();
          if (call.out_bytes() != serial) ++count;
        }
      }
    }
    return {};
  });
  EXPECT_EQ(complaints.text(), "");
  return count;
}

TEST_P(FusedPushedScatter, has_the_bits_of_serial_where_it_is_batch_invariant) {
  EXPECT_EQ(count_other_bits(GetParam(), true), 0);
  EXPECT_GT(count_other_bits(GetParam(), false), 0);
}

// Ops of all kinds use the same workspace one behind the other, and no rank waits on the host between them.
TEST_P(FusedPushedScatter, between_other_ops) {
  constexpr std::int64_t kRows = 48, kColumns = 16;
  const std::vector<Case> cases = {{.sizes = {kRows, kColumns}},
                                   {.sizes = {kRows - 1, kColumns}, .num_products = 3, .keeps_product = true},
                                   {.sizes = {5, kColumns}, .bias = true},
                                   {.sizes = {kRows, kColumns}, .to_all = true},
                                   {.sizes = {kRows - 5, kColumns}, .bias = true, .to_all = true},
                                   {.sizes = {kRows, kColumns}, .to_all = true, .in_rounds = true}};
  Complaints complaints;
  test::on_ranks(GetParam(), test::quick_config(), complaints, [&](RankContextOfTest& rank) -> Result<void> {
    const int world = rank.group.size();
    std::deque<Call> calls;
    for (const Case& c : cases) calls.emplace_back(rank, c);
    const Guarded a(rank.device, Dims{kRows, 8}, DType::kBF16);
    const Guarded b(rank.device, Dims{8, kColumns}, DType::kBF16);
    const Guarded all(rank.device, Dims{kRows * world, kColumns}, DType::kBF16);
    a.fill([](std::int64_t) { return 1; });
    b.fill([](std::int64_t) { return 2; });
    for (int turn = 0; turn < (GetParam().is_on_cpu() ? 12 : 4); ++turn) {
      const Algorithm algorithm = turn % 2 == 0 ? Algorithm::kPipelined : Algorithm::kSerial;
      if (auto gathered = test::gather_and_multiply(a, b, all, algorithm, rank.group, rank.stream); !gathered)
        return gathered;
      for (std::size_t i = 0; i < calls.size(); ++i) {
        const auto report = calls[(i + static_cast<std::size_t>(turn)) % calls.size()].run(1 + turn % 4);
        if (!report) return tl::unexpected(report.error());
      }
    }
    if (auto done = rank.stream.synchronize(); !done) return done;
    for (std::size_t i = 0; i < calls.size(); ++i)
      calls[i].check(fmt::format("call {}, rank {}", i, rank.group.rank()), complaints);
    all.download();
    for (std::int64_t i = 0; i < all.view().numel(); ++i) {
      if (all.at(i) == 16) continue;
      complaints.add(fmt::format("gathered product {} is {}", i, all.at(i)));
      break;
    }
    return check_pads(rank, complaints);
  });
  EXPECT_EQ(complaints.text(), "");
}

INSTANTIATE_TEST_SUITE_P(Ranks, FusedPushedScatter, ::testing::ValuesIn(test::exact_cases({2, 3, 4, 8})),
                         test::job_name);

}  // namespace
}  // namespace tandem
