// Native calls that are recorded and replayed, mixed with eager ones: both have words of their own, and the
// eager call makes what the recording cannot. Small whole numbers: every element is exact.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "conformance/fused_harness.hpp"
#include "support/simulated.hpp"

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

/// Native by name, or as `auto` takes it.
Result<void> enqueue(const Call& call, RankContextOfTest& rank, Complaints& complaints) {
  AllGatherMatmulArgs args = call.args();
  args.algorithm = Algorithm::kNative;
  const auto report = fused_all_gather_matmul(args, rank.group, rank.stream);
  if (!report) return tl::unexpected(report.error());
  if (report->algorithm != Algorithm::kNative)
    complaints.add(fmt::format("ran {}, need native", to_string(report->algorithm)));
  return {};
}

/// What a recording of the call replays.
Result<std::unique_ptr<Graph>> record(const Call& call, RankContextOfTest& rank, Complaints& complaints) {
  if (auto begun = rank.stream.begin_capture(); !begun) return tl::unexpected(begun.error());
  const auto enqueued = enqueue(call, rank, complaints);
  auto graph = rank.stream.end_capture();
  if (!enqueued) return tl::unexpected(enqueued.error());
  return graph;
}

/// A size that is called, recorded and replayed.
struct Recorded {
  Call call;
  std::unique_ptr<Graph> graph;
};

/// Every size eager first, then recorded. Each needs more memory than the one before.
Result<void> record_all(std::vector<std::unique_ptr<Recorded>>& all, RankContextOfTest& rank,
                        Complaints& complaints) {
  for (const auto& one : all) {
    one->call.begin(0);
    if (auto done = enqueue(one->call, rank, complaints); !done) return done;
    if (auto done = rank.stream.synchronize(); !done) return done;
    one->call.check(0, "eager", complaints);
    auto graph = record(one->call, rank, complaints);
    if (!graph) return tl::unexpected(graph.error());
    one->graph = *std::move(graph);
    // Making a graph may wait for what runs on the GPU: all ranks have theirs before one is launched.
    if (auto met = rank.group.all_gather({}, "graphs are made"); !met) return tl::unexpected(met.error());
  }
  return {};
}

class FusedNativeRecorded : public ::testing::TestWithParam<JobCase> {
 protected:
  /// Shards go in pieces to `piece_peers` ranks, or to as many as the library chooses, and by copies to the
  /// others.
  static void replay(std::optional<int> piece_peers, std::vector<std::int64_t> rows = {512, 1024, 2048});
};

void FusedNativeRecorded::replay(std::optional<int> piece_peers, std::vector<std::int64_t> rows) {
  if (GetParam().is_on_cpu()) GTEST_SKIP() << "streams of CPUs are not recorded";
  Config config = test::quick_config();
  config.native_pieces = piece_peers;
  Complaints complaints;
  test::on_ranks(GetParam(), config, complaints, [&](RankContextOfTest& rank) -> Result<void> {
    std::vector<std::unique_ptr<Recorded>> all;
    for (const std::int64_t m : rows)
      all.push_back(std::make_unique<Recorded>(Recorded{Call(rank, m), nullptr}));
    if (auto done = record_all(all, rank, complaints); !done) return done;
    const int turns = testing::is_simulated(rank.device) ? 30 : 1000;
    for (int turn = 1; turn <= turns; ++turn) {
      Recorded& one = *all[static_cast<std::size_t>(turn) % all.size()];
      const bool is_eager = turn % 5 == 0;
      const bool is_checked = turn % 10 < 3;
      if (is_checked) one.call.begin(turn);
      if (auto done = is_eager ? enqueue(one.call, rank, complaints) : one.graph->launch(rank.stream); !done)
        return done;
      if (!is_checked) continue;  // several in the queue at one time
      if (auto done = rank.stream.synchronize(); !done) return done;
      one.call.check(turn, fmt::format("{} in turn {}", is_eager ? "eager" : "replayed", turn), complaints);
    }
    if (auto done = rank.stream.synchronize(); !done) return done;
    return test::check_pads(rank, complaints);
  });
  EXPECT_EQ(complaints.text(), "");
}

TEST_P(FusedNativeRecorded, replays_by_copies_and_eager_calls_take_turns) {
  replay(0);
}

TEST_P(FusedNativeRecorded, replays_in_pieces_and_by_copies_and_eager_calls_take_turns) {
  replay(1);
}

TEST_P(FusedNativeRecorded, replays_as_the_library_chooses_and_eager_calls_take_turns) {
  replay(std::nullopt);
}

TEST_P(FusedNativeRecorded, replays_of_few_rows_and_eager_calls_take_turns) {
  replay(std::nullopt, {4, 120, 384});
}

TEST_P(FusedNativeRecorded, needs_an_eager_call_first) {
  if (GetParam().is_on_cpu()) GTEST_SKIP() << "streams of CPUs are not recorded";
  Complaints complaints;
  test::on_ranks(GetParam(), test::quick_config(), complaints, [&](RankContextOfTest& rank) -> Result<void> {
    const Call call(rank, 512);
    const auto graph = record(call, rank, complaints);
    if (graph) complaints.add("a recording made memory");
    return {};
  });
  EXPECT_EQ(complaints.text(), "");
}

INSTANTIATE_TEST_SUITE_P(Ranks, FusedNativeRecorded, ::testing::ValuesIn(test::all_cases({2, 4})),
                         test::job_name);

}  // namespace
}  // namespace tandem
