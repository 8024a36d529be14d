// Eager calls of `auto` that take native, which cannot be recorded yet: a recording of them runs another
// algorithm, whose memory and products the eager call has made. Small whole numbers: every element is exact.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <string>
#include <tandem/cost/folder.hpp>
#include <vector>

#include "conformance/fused_harness.hpp"
#include "support/io_folder.hpp"

namespace tandem {
namespace {

using test::Complaints;
using test::Guarded;
using test::JobCase;
using test::RankContextOfTest;

constexpr std::int64_t kK = 64;
constexpr std::int64_t kN = 64;

int a_at(int turn, std::int64_t row, std::int64_t j) {
  return static_cast<int>((row * 5 + j * 3 + turn * 7) % 5) - 2;
}
int b_at(std::int64_t j, std::int64_t column) {
  return static_cast<int>((j + column * 11) % 3) - 1;
}

/// A rank's tensors of one size.
class Call {
 public:
  Call(RankContextOfTest& rank, std::int64_t m)
      : rank_(rank),
        m_(m),
        a_(rank.device, Dims{m / rank.group.size(), kK}, DType::kBF16),
        b_(rank.device, Layout{{kK, kN}, {1, kK}}, DType::kBF16),
        out_(rank.device, Dims{m, kN}, DType::kBF16),
        bs_{b_.view()},
        outs_{out_.view()} {
    b_.fill([](std::int64_t idx) { return b_at(idx / kN, idx % kN); });
  }

  [[nodiscard]] AllGatherMatmulArgs args() const {
    return {.a = a_.view(), .b = bs_, .gather_size = m_, .out = outs_, .plan_n = kN};
  }
  /// Another a, and out as if nobody had written it.
  void begin(int turn) {
    const std::int64_t first = m_ / rank_.group.size() * rank_.group.rank();
    a_.fill([&](std::int64_t idx) { return a_at(turn, first + idx / kK, idx % kK); });
    out_.poison();
  }
  void check(int turn, const std::string& name, Complaints& complaints) {
    out_.download();
    if (!out_.guards_are_whole()) complaints.add(name + ": a guard byte was written");
    for (std::int64_t row = 0; row < m_; ++row) {
      for (std::int64_t column = 0; column < kN; ++column) {
        int need = 0;
        for (std::int64_t j = 0; j < kK; ++j) need += a_at(turn, row, j) * b_at(j, column);
        const double got = out_.at(row * kN + column);
        if (got == need) continue;
        return complaints.add(fmt::format("{}, rank {}: [{}, {}] is {}, need {}", name, rank_.group.rank(),
                                          row, column, got, need));
      }
    }
  }

 private:
  RankContextOfTest& rank_;
  std::int64_t m_;
  Guarded a_, b_, out_;
  std::array<TensorView, 1> bs_, outs_;
};

struct Size {
  std::int64_t m = 0;
  Algorithm recorded = Algorithm::kPipelined;
};

/// A group of all ranks that knows a table by which native is the fastest, and then what shall be recorded.
Result<std::unique_ptr<Group>> group_with_table(RankContextOfTest& rank, const std::vector<Size>& sizes,
                                                const tests::Folder& folder) {
  std::vector<cost::Row> rows;
  for (const Size& size : sizes) {
    const auto report = plan(Call(rank, size.m).args(), rank.group, rank.stream);
    if (!report) return tl::unexpected(report.error());
    rows.push_back({.key = *report->tune_key, .us = {{"serial", 90}, {"pipelined", 90}, {"native", 50}}});
    rows.back().us[std::string(to_string(size.recorded))] = 60;
  }
  if (rank.group.rank() == 0) {
    if (auto added = cost::add_rows(folder.path(), rank.device.description(), rows); !added)
      return tl::unexpected(added.error());
  }
  if (auto met = rank.group.all_gather({}, "there is a table"); !met) return tl::unexpected(met.error());
  Config config = rank.group.config();
  config.tune_folder = folder.path().native();
  const std::shared_ptr<Store> store(std::shared_ptr<void>(), &rank.group.store());
  return Group::create({.rank = rank.group.rank(),
                        .size = rank.group.size(),
                        .name = "with a table",
                        .store = store,
                        .config = config,
                        .device = rank.device.description()});
}

/// Eager, recorded, replayed; eager and replayed once more.
Result<void> run(RankContextOfTest& rank, const Size& size, Complaints& complaints) {
  const std::int64_t m = size.m;
  Call call(rank, m);
  Algorithm ran = Algorithm::kAuto;
  const auto enqueue = [&]() -> Result<void> {
    const auto report = fused_all_gather_matmul(call.args(), rank.group, rank.stream);
    if (!report) return tl::unexpected(report.error());
    ran = report->algorithm;
    return {};
  };
  const auto need = [&](Algorithm algorithm, const char* how) {
    if (ran == algorithm) return;
    complaints.add(fmt::format("{} rows, {}: ran {}, need {}", m, how, to_string(ran), to_string(algorithm)));
  };
  std::unique_ptr<Graph> graph;
  for (int turn = 0; turn < 4; ++turn) {
    call.begin(turn);
    const bool is_eager = turn % 2 == 0;
    if (auto done = is_eager ? enqueue() : graph->launch(rank.stream); !done) return done;
    if (is_eager) need(Algorithm::kNative, "eager");
    if (auto done = rank.stream.synchronize(); !done) return done;
    call.check(turn, fmt::format("{} rows, {} in turn {}", m, is_eager ? "eager" : "replayed", turn),
               complaints);
    if (turn > 0) continue;
    if (auto begun = rank.stream.begin_capture(); !begun) return begun;
    const auto enqueued = enqueue();
    auto recorded = rank.stream.end_capture();
    if (!enqueued) return enqueued;
    if (!recorded) return tl::unexpected(recorded.error());
    graph = *std::move(recorded);
    need(size.recorded, "recorded");
    // Making a graph may wait for what runs on the GPU: all ranks have theirs before one is launched.
    if (auto met = rank.group.all_gather({}, "graphs are made"); !met) return tl::unexpected(met.error());
  }
  return {};
}

class FusedNativeRecorded : public ::testing::TestWithParam<JobCase> {};

TEST_P(FusedNativeRecorded, runs_what_its_eager_call_has_made_ready) {
  if (GetParam().is_on_cpu()) GTEST_SKIP() << "streams of CPUs are not recorded";
  const tests::Folder folder;
  // Each recording needs more memory than the one before.
  const std::vector<Size> sizes = {
      {512, Algorithm::kPipelined}, {1024, Algorithm::kSerial}, {2048, Algorithm::kPipelined}};
  Complaints complaints;
  test::on_ranks(GetParam(), test::quick_config(), complaints, [&](RankContextOfTest& rank) -> Result<void> {
    const auto group = group_with_table(rank, sizes, folder);
    if (!group) return tl::unexpected(group.error());
    RankContextOfTest with_table{**group, rank.device, rank.stream};
    for (const Size& size : sizes) {
      if (auto done = run(with_table, size, complaints); !done) return done;
    }
    return test::check_pads(with_table, complaints);
  });
  EXPECT_EQ(complaints.text(), "");
}

INSTANTIATE_TEST_SUITE_P(Ranks, FusedNativeRecorded, ::testing::ValuesIn(test::all_cases({2, 4})),
                         test::job_name);

}  // namespace
}  // namespace tandem
