#include <gtest/gtest.h>
#include <malloc.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <ostream>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "conformance/fused_harness.hpp"
#include "fused/gather/plan.hpp"

// Config::max_plans: what a group remembers of its problems, and what becomes of those it has forgotten.

namespace tandem {
namespace {

using test::Complaints;
using test::Guarded;
using test::JobCase;
using test::RankContextOfTest;

constexpr int kWorld = 2;

enum class Op { kGather, kScatter, kAllReduce, kScaledGather, kScaledScatter };
constexpr std::array kOps = {Op::kGather, Op::kScatter, Op::kAllReduce, Op::kScaledGather,
                             Op::kScaledScatter};
std::string_view to_string(Op op) {
  constexpr std::array<std::string_view, 5> kNames = {"gather", "scatter", "all_reduce", "scaled_gather",
                                                      "scaled_scatter"};
  return kNames[static_cast<std::size_t>(op)];
}

/// m x 1 x k over all ranks; every factor is 1.
struct Problem {
  Op op = Op::kGather;
  Algorithm algorithm = Algorithm::kAuto;
  std::int64_t rows = kWorld;  ///< a multiple of the ranks
  std::int64_t planes = 1;     ///< of rows, as another dim
  std::int64_t k = 1;
};

/// Tensors that are large enough for every problem of a test; each call looks at a part of them.
class Operands {
 public:
  Operands(RankContextOfTest& rank, std::int64_t most_rows, std::int64_t most_k)
      : rank_(rank),
        a_(rank.device, Dims{most_rows * most_k}, DType::kBF16),
        narrow_a_(rank.device, Dims{most_rows * most_k}, DType::kF8E4M3),
        b_(rank.device, Dims{most_k}, DType::kBF16),
        narrow_b_(rank.device, Dims{most_k}, DType::kF8E4M3),
        out_(rank.device, Dims{most_rows}, DType::kBF16),
        scale_(rank.device, Dims{1}, DType::kF32) {
    for (Guarded* const ones : {&a_, &narrow_a_, &b_, &narrow_b_, &scale_}) {
      ones->fill([](std::int64_t) { return 1.0; });
    }
  }

  Result<OpReport> call(const Problem& p) {
    const bool is_scaled = p.op == Op::kScaledGather || p.op == Op::kScaledScatter;
    const bool is_gather = p.op == Op::kGather || p.op == Op::kScaledGather;
    const std::int64_t shard = p.rows / kWorld;
    const TensorView a = part(is_scaled ? narrow_a_ : a_, {is_gather ? shard : p.rows, p.planes, p.k});
    const TensorView b = part(is_scaled ? narrow_b_ : b_, {p.k, 1});
    const bool is_scatter = p.op == Op::kScatter || p.op == Op::kScaledScatter;
    const TensorView out = part(out_, {is_scatter ? shard : p.rows, p.planes, 1});
    const TensorView scale = scale_.view();
    const std::optional<TensorView> some_scale = scale;
    switch (p.op) {
      case Op::kGather:
        return fused_all_gather_matmul(
            {.a = a, .b = {&b, 1}, .gather_size = p.rows, .out = {&out, 1}, .algorithm = p.algorithm},
            rank_.group, rank_.stream);
      case Op::kScatter:
        return fused_matmul_reduce_scatter({.a = {&a, 1}, .b = {&b, 1}, .out = out, .algorithm = p.algorithm},
                                           rank_.group, rank_.stream);
      case Op::kAllReduce:
        return fused_matmul_all_reduce({.a = {&a, 1}, .b = {&b, 1}, .out = out, .algorithm = p.algorithm},
                                       rank_.group, rank_.stream);
      case Op::kScaledGather:
        return fused_all_gather_scaled_matmul({.a = a,
                                               .b = {&b, 1},
                                               .a_scale = scale,
                                               .b_scale = {&scale, 1},
                                               .gather_size = p.rows,
                                               .out = {&out, 1},
                                               .algorithm = p.algorithm},
                                              rank_.group, rank_.stream);
      case Op::kScaledScatter:
        return fused_scaled_matmul_reduce_scatter({.a = {&a, 1},
                                                   .b = {&b, 1},
                                                   .a_scale = {&some_scale, 1},
                                                   .b_scale = {&some_scale, 1},
                                                   .out = out,
                                                   .algorithm = p.algorithm},
                                                  rank_.group, rank_.stream);
    }
    return fail(ErrorCode::kInternal, "no such op");
  }

  /// Calls it and waits, on an output full of NaN.
  Result<OpReport> call_and_check(const Problem& p, Complaints& complaints) {
    out_.poison();
    auto report = call(p);
    if (!report) return report;
    if (auto done = rank_.stream.synchronize(); !done) return tl::unexpected(done.error());
    out_.download();
    const bool is_gather = p.op == Op::kGather || p.op == Op::kScaledGather;
    const auto need = static_cast<double>(is_gather ? p.k : kWorld * p.k);
    const bool is_scatter = p.op == Op::kScatter || p.op == Op::kScaledScatter;
    const std::int64_t num = p.planes * (is_scatter ? p.rows / kWorld : p.rows);
    for (std::int64_t i = 0; i < num; ++i) {
      if (out_.at(i) == need) continue;
      complaints.add(std::string(report->key) + ": element " + std::to_string(i) + " is " +
                     std::to_string(out_.at(i)) + ", need " + std::to_string(need));
      break;
    }
    return report;
  }

 private:
  static TensorView part(const Guarded& whole, const Dims& sizes) {
    return TensorView::contiguous(whole.view().data, sizes, whole.view().dtype, whole.view().device);
  }

  RankContextOfTest& rank_;
  Guarded a_, narrow_a_, b_, narrow_b_, out_, scale_;
};

JobCase cpu_job() {
  return {.ranks = {.placement = {DeviceKind::kCpu}, .size = kWorld}};
}

Config config_with(int max_plans) {
  Config config = test::quick_config();
  config.max_plans = max_plans;
  return config;
}

/// What a long-lived process keeps, all threads together. Units: bytes.
std::int64_t allocated_bytes() {
  const struct mallinfo2 info = ::mallinfo2();
  return static_cast<std::int64_t>(info.uordblks + info.hblkhd);
}

TEST(FusedMaxPlans, memory_levels_off_over_100000_shapes) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  constexpr int kNumShapes = 5'000;
#else
  constexpr int kNumShapes = 100'000;
#endif
  constexpr int kLimit = 64;
  Complaints complaints;
  std::atomic<std::int64_t> bytes_at_half = 0, bytes_at_end = 0;
  test::on_ranks(cpu_job(), config_with(kLimit), complaints, [&](RankContextOfTest& rank) -> Result<void> {
    Operands operands(rank, 100 * 50, 40);
    for (int i = 0; i < kNumShapes; ++i) {
      const int shape = static_cast<int>(std::int64_t{i} * 7919 % 100'000);  // small and large ones mixed
      const Problem problem{.algorithm = i % 3 == 0 ? Algorithm::kAuto : Algorithm::kSerial,
                            .rows = kWorld * (1 + shape % 50),
                            .planes = 1 + shape / 50 % 50,
                            .k = 1 + shape / 2500};
      if (auto report = operands.call(problem); !report) return tl::unexpected(report.error());
      const bool is_looked_at = i + 1 == kNumShapes / 2 || i + 1 == kNumShapes;
      if (i % 64 != 63 && !is_looked_at) continue;
      if (auto done = rank.stream.synchronize(); !done) return done;
      if (!is_looked_at) continue;
      if (auto met = rank.group.all_gather({}, "look"); !met) return tl::unexpected(met.error());
      if (rank.group.rank() == 0) (i + 1 < kNumShapes ? bytes_at_half : bytes_at_end) = allocated_bytes();
      if (auto met = rank.group.all_gather({}, "go on"); !met) return tl::unexpected(met.error());
      const auto& plans =
          fused::plans_of<fused::GatherProblem, fused::GatherPlan>(rank.group, "fused.gather");
      if (plans.size() != kLimit) complaints.add(std::to_string(plans.size()) + " plans");
    }
    return {};
  });
  EXPECT_EQ(complaints.text(), "");
  // A plan takes more than 1 KiB, so 50,000 of two ranks would take 100 MiB. Sanitizers say 0.
  EXPECT_LT(bytes_at_end - bytes_at_half, 1 << 18);
}

struct Case {
  Op op = Op::kGather;
  Algorithm algorithm = Algorithm::kAuto;
  int limit = 1;
};
std::string name_of(const Case& c) {
  return std::string(to_string(c.op)) + "_" + std::string(tandem::to_string(c.algorithm)) + "_" +
         std::to_string(c.limit);
}
void PrintTo(const Case& c, std::ostream* out) {
  *out << name_of(c);
}

class FusedForgottenPlans : public ::testing::TestWithParam<Case> {};

// Random problems of all ops, more than are remembered, on ranks that are out of step.
TEST_P(FusedForgottenPlans, are_made_anew_when_they_come_again) {
  const Case c = GetParam();
  Complaints complaints;
  test::on_ranks(cpu_job(), config_with(c.limit), complaints, [&](RankContextOfTest& rank) -> Result<void> {
    constexpr int kNumProblems = 12;
    Operands operands(rank, kWorld * kNumProblems, kNumProblems);
    std::mt19937 order(3);
    std::mt19937 timing(static_cast<unsigned>(rank.group.rank()));
    std::map<std::int64_t, std::vector<OpReport>> reports;
    for (int i = 0; i < 150; ++i) {
      if (timing() % 4 == 0) std::this_thread::sleep_for(std::chrono::microseconds(timing() % 500));
      const auto number = static_cast<std::int64_t>(order() % kNumProblems);
      const Problem problem{
          .op = c.op, .algorithm = c.algorithm, .rows = kWorld * (1 + number), .k = 1 + number};
      auto report = operands.call_and_check(problem, complaints);
      if (!report) return tl::unexpected(report.error());
      reports[number].push_back(*report);
      // Ops of another kind take places too.
      const Problem other{.op = kOps[order() % kOps.size()],
                          .rows = kWorld * static_cast<std::int64_t>(1 + order() % 7)};
      if (auto ran = operands.call_and_check(other, complaints); !ran) return tl::unexpected(ran.error());
    }
    for (const auto& [number, same] : reports) {
      for (const OpReport& report : same) {
        if (report.algorithm != same[0].algorithm || report.reason != same[0].reason ||
            report.key != same[0].key || report.candidates.size() != same[0].candidates.size())
          complaints.add("problem " + std::to_string(number) + " has two plans: " +
                         std::string(report.reason) + " and " + std::string(same[0].reason));
      }
    }
    return {};
  });
  EXPECT_EQ(complaints.text(), "");
}

std::vector<Case> every_case() {
  std::vector<Case> all;
  for (const Op op : kOps) {
    for (const Algorithm algorithm :
         {Algorithm::kAuto, Algorithm::kSerial, Algorithm::kPipelined, Algorithm::kNative}) {
      if (algorithm == Algorithm::kNative && op != Op::kGather) continue;
      for (const int limit : {1, 5}) all.push_back({op, algorithm, limit});
    }
  }
  return all;
}
INSTANTIATE_TEST_SUITE_P(Ops, FusedForgottenPlans, ::testing::ValuesIn(every_case()),
                         [](const auto& c) { return name_of(c.param); });

TEST(FusedMaxPlans, a_report_outlives_its_plan_and_its_group) {
  Complaints complaints;
  std::vector<OpReport> kept(kWorld);
  test::on_ranks(cpu_job(), config_with(1), complaints, [&](RankContextOfTest& rank) -> Result<void> {
    Operands operands(rank, 64, 64);
    const auto idx = static_cast<std::size_t>(rank.group.rank());
    for (std::int64_t k = 1; k <= 64; ++k) {
      auto report = operands.call({.rows = kWorld * (k % 9 + 1), .k = k});
      if (!report) return tl::unexpected(report.error());
      if (k == 1) kept[idx] = *report;
    }
    return rank.stream.synchronize();
  });
  EXPECT_EQ(complaints.text(), "");
  for (const OpReport& report : kept) {
    EXPECT_EQ(report.key, "all_gather_matmul 4x1x1 bf16 dim 0 w2");
    EXPECT_EQ(report.reason.substr(0, 9), "predicted");
    EXPECT_EQ(report.candidates.size(), 3U);
    EXPECT_EQ(report.candidates[0].algorithm, Algorithm::kSerial);
  }
}

TEST(FusedMaxPlans, rank_0s_limit_is_everybodys) {
  const auto store = make_in_process_store();
  std::vector<std::thread> ranks;
  std::array<std::string, kWorld> seen;
  for (int r = 0; r < kWorld; ++r) {
    ranks.emplace_back([&, r] {
      const auto group = Group::create(
          {.rank = r, .size = kWorld, .name = "g", .store = store, .config = config_with(r == 0 ? 3 : 50)});
      if (!group) {
        seen[static_cast<std::size_t>(r)] = group.error().to_string();
        return;
      }
      const std::array all = {1, 0};
      const auto part = (*group)->subgroup(all, "other way round");
      seen[static_cast<std::size_t>(r)] =
          std::to_string((*group)->config().max_plans) + " " +
          (part ? std::to_string((*part)->config().max_plans) : part.error().to_string());
    });
  }
  for (std::thread& rank : ranks) rank.join();
  for (const std::string& one : seen) EXPECT_EQ(one, "3 3");
}

TEST(FusedMaxPlans, a_limit_below_one_is_refused) {
  const auto group = Group::create(
      {.rank = 0, .size = 1, .name = "g", .store = make_in_process_store(), .config = config_with(0)});
  ASSERT_FALSE(group.has_value());
  EXPECT_EQ(group.error().to_string(), "InvalidArgument: group 'g': max_plans 0, need at least 1");
}

}  // namespace
}  // namespace tandem
