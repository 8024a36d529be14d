#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "conformance/fused_harness.hpp"

// A rank that is later than the others' deadline. They have given up by then, and what their hosts queued
// behind that op has run: signals and data of later ops are there for the late rank to find. Nobody else
// looks at its stream first, so it has to hear of it by itself. Where ranks share a GPU, the others' hosts
// wait for it in the first of these calls, and give up there.

namespace tandem {
namespace {

using test::Complaints;
using test::Guarded;
using test::JobCase;
using test::RankContextOfTest;

// The first op is to succeed within it, on a busy machine too.
constexpr auto kDeadline = std::chrono::milliseconds(800);

struct Gather {
  Gather(Device& device, int world)
      : a(device, Dims{kRows, kK}, DType::kBF16),
        b(device, Dims{kK, kN}, DType::kBF16),
        out(device, Dims{kRows * world, kN}, DType::kBF16) {}

  static constexpr std::int64_t kRows = 256;
  static constexpr std::int64_t kK = 128;
  static constexpr std::int64_t kN = 64;
  Guarded a, b, out;
};

class FusedLateRank : public ::testing::TestWithParam<JobCase> {
 protected:
  enum class First { kLook, kEndGroup };

  /// Three calls that the last rank enqueues when the others have given up. It is the first to look, and
  /// what it does before that is `first`.
  static Result<void> be_late(RankContextOfTest& rank, Algorithm algorithm, First first,
                              Complaints& complaints) {
    auto group = test::subgroup_of_all(rank.group, "late");
    if (!group) return tl::unexpected(group.error());
    const Gather gather(rank.device, rank.group.size());
    const auto call = [&] {
      return test::gather_and_multiply(gather.a, gather.b, gather.out, algorithm, **group, rank.stream);
    };
    if (auto done = call().and_then([&] { return rank.stream.synchronize(); }); !done) return done;
    if (auto met = rank.group.all_gather({}, "all know the op"); !met) return tl::unexpected(met.error());
    const bool is_late = rank.group.rank() == rank.group.size() - 1;
    Result<void> done;
    const auto enqueue = [&] {
      for (int i = 0; i < 3 && done; ++i) done = call();
    };
    if (!is_late) enqueue();
    const testing::Placement& placement = GetParam().ranks.placement;
    const bool shares_gpu = placement.kind == DeviceKind::kCuda && !placement.one_gpu_each;
    if (!shares_gpu) {
      if (auto met = rank.group.all_gather({}, "the others have enqueued"); !met)
        return tl::unexpected(met.error());
    }
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
