#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "conformance/fused_harness.hpp"

// A rank that is later than the others' deadline. They have given up by then, and what their hosts queued
// behind that op has run: signals and data of later ops are there for the late rank to find. Nobody else
// looks at its stream first, so it has to hear of it by itself.

namespace tandem {
namespace {

using test::Complaints;
using test::Guarded;
using test::JobCase;
using test::RankContextOfTest;

constexpr auto kDeadline = std::chrono::milliseconds(250);

class Gather {
 public:
  Gather(RankContextOfTest& rank, Group& group)
      : rank_(rank),
        group_(group),
        a_(rank.device, Dims{kRows, kK}, DType::kBF16),
        b_(rank.device, Dims{kK, kN}, DType::kBF16),
        out_(rank.device, Dims{kRows * group.size(), kN}, DType::kBF16) {}

  Result<void> call(Algorithm algorithm) {
    const std::vector<TensorView> bs = {b_.view()};
    const std::vector<TensorView> outs = {out_.view()};
    const auto report = fused_all_gather_matmul({.a = a_.view(),
                                                 .b = bs,
                                                 .gather_dim = 0,
                                                 .gather_size = kRows * group_.size(),
                                                 .out = outs,
                                                 .algorithm = algorithm},
                                                group_, rank_.stream);
    if (!report) return tl::unexpected(report.error());
    return {};
  }

 private:
  static constexpr std::int64_t kRows = 256;
  static constexpr std::int64_t kK = 128;
  static constexpr std::int64_t kN = 64;

  RankContextOfTest& rank_;
  Group& group_;
  Guarded a_, b_, out_;
};

class FusedLateRank : public ::testing::TestWithParam<JobCase> {
 protected:
  enum class First { kLook, kEndGroup };

  /// Three calls that the last rank enqueues when the others have given up. It is the first to look, and
  /// what it does before that is `first`.
  static Result<void> be_late(RankContextOfTest& rank, Algorithm algorithm, First first,
                              Complaints& complaints) {
    std::vector<int> all(static_cast<std::size_t>(rank.group.size()));
    std::iota(all.begin(), all.end(), 0);
    auto group = rank.group.subgroup(all, "late");
    if (!group) return tl::unexpected(group.error());
    Gather gather(rank, **group);
    if (auto done = gather.call(algorithm).and_then([&] { return rank.stream.synchronize(); }); !done)
      return done;
    if (auto met = rank.group.all_gather({}, "all know the op"); !met) return tl::unexpected(met.error());
    const bool is_late = rank.group.rank() == rank.group.size() - 1;
    Result<void> done;
    const auto enqueue = [&] {
      for (int i = 0; i < 3 && done; ++i) done = gather.call(algorithm);
    };
    if (!is_late) enqueue();
    if (auto met = rank.group.all_gather({}, "the others have enqueued"); !met)
      return tl::unexpected(met.error());
    Result<void> waited;
    const auto look = [&] { waited = rank.stream.synchronize(); };
    if (is_late) {
      std::this_thread::sleep_for(2 * kDeadline);
      enqueue();
      if (first == First::kEndGroup) group->reset();
      look();
    }
    if (auto met = rank.group.all_gather({}, "the late rank has looked"); !met)
      return tl::unexpected(met.error());
    if (!is_late) look();
    if (done) done = waited;
    const std::string who = "rank " + std::to_string(rank.group.rank());
    const std::string late = "for rank " + std::to_string(rank.group.size() - 1) + " in";
    if (done) {
      complaints.add(who + " heard of nothing");
    } else if (done.error().code() != ErrorCode::kTimeout ||
               done.error().text().find(late) == std::string::npos) {
      complaints.add(who + ": " + done.error().to_string());
    }
    return {};
  }

  static void check(First first) {
    for (const Algorithm algorithm : {Algorithm::kSerial, Algorithm::kPipelined, Algorithm::kNative}) {
      SCOPED_TRACE(to_string(algorithm));
      Config config = test::quick_config();
      config.op_timeout = kDeadline;
      Complaints complaints;
      test::on_ranks(GetParam(), config, complaints, [&](RankContextOfTest& rank) -> Result<void> {
        return be_late(rank, algorithm, first, complaints);
      });
      EXPECT_EQ(complaints.text(), "");
    }
  }
};

TEST_P(FusedLateRank, hears_of_those_that_gave_up) {
  check(First::kLook);
}

TEST_P(FusedLateRank, hears_of_them_when_it_has_ended_the_group) {
  check(First::kEndGroup);
}

INSTANTIATE_TEST_SUITE_P(Ranks, FusedLateRank, ::testing::ValuesIn(test::exact_cases({2, 3})),
                         test::job_name);

}  // namespace
}  // namespace tandem
