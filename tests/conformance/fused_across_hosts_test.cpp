#include <fmt/format.h>
#include <gtest/gtest.h>

#include <numeric>

#include "conformance/all_reduces_across_hosts.hpp"
#include "support/thread_hosts.hpp"

namespace tandem::test {
namespace {

using harness::Op;
using harness::Problem;
using RankRun = RankRunAcrossHosts;

struct HostsCase {
  int num_hosts;
  int ranks_per_host;
  [[nodiscard]] int ranks() const { return num_hosts * ranks_per_host; }
};
void PrintTo(const HostsCase& hosts, std::ostream* out) {
  *out << hosts.num_hosts << "_hosts_of_" << hosts.ranks_per_host;
}
std::string name_of(const ::testing::TestParamInfo<HostsCase>& info) {
  return fmt::format("{}_hosts_of_{}", info.param.num_hosts, info.param.ranks_per_host);
}

class FusedAcrossHosts : public ::testing::TestWithParam<HostsCase> {
 protected:
  /// `body` on every rank, with a device and a stream of its own.
  std::string on_ranks(const Config& config,
                       const std::function<Result<void>(RankContextOfTest&, Complaints&)>& body) {
    hosts_ = {
        .num_hosts = GetParam().num_hosts, .ranks_per_host = GetParam().ranks_per_host, .config = config};
    Complaints complaints;
    const auto results = hosts_.run([&](Group& group) -> Result<void> {
      try {
        const auto device = harness::take(open_device({DeviceKind::kCpu, 0}, config));
        const auto stream = harness::take(device->create_stream());
        RankContextOfTest rank{group, *device, *stream};
        return body(rank, complaints);
      } catch (const harness::Failure& failure) {
        group.poison(failure.error(), group.rank());
        return tl::unexpected(failure.error());
      }
    });
    for (const auto& result : results) {
      if (!result) complaints.add(result.error().to_string());
    }
    return complaints.text();
  }

  ThreadHosts hosts_;
};

TEST_P(FusedAcrossHosts, IsRightForEveryOpTypeDimAndAlgorithm) {
  const std::string complaints =
      on_ranks(quick_config(), [](RankContextOfTest& rank, Complaints& found) -> Result<void> {
        EXPECT_EQ(rank.group.num_hosts(), GetParam().num_hosts);
        for (const Problem& problem : problems_across_hosts(rank.group.size())) {
          RankRun run(problem, rank.group, rank.device, rank.stream);
          for (const Algorithm algorithm : {Algorithm::kSerial, Algorithm::kPipelined, Algorithm::kAuto})
            run.run(algorithm, found);
          run.run_native(found);
        }
        return rank.group.status();
      });
  EXPECT_EQ(complaints, "");
  EXPECT_EQ(hosts_.wire->num_left(), 0U) << "messages that nobody has taken";
}

/// All ranks get the same bits, and both algorithms have them.
TEST_P(FusedAcrossHosts, AllReducesHaveEveryOption) {
  for (const bool checks : {false, true}) {
    Config config = quick_config();
    config.nan_check = checks;
    config.batch_invariant = checks;
    AllReducesAcrossHosts all_reduces(GetParam().ranks());
    const std::string complaints =
        on_ranks(config, [&](RankContextOfTest& rank, Complaints& found) -> Result<void> {
          if (auto ran = all_reduces.run(rank, true, found); !ran) return ran;
          return rank.group.status();
        });
    EXPECT_EQ(complaints, "");
    EXPECT_EQ(hosts_.wire->num_left(), 0U) << "messages that nobody has taken";
  }
}

TEST_P(FusedAcrossHosts, ChunksOfAnAllReduceHaveTheBitsOfTheWhole) {
  const std::string complaints =
      on_ranks(quick_config(), [](RankContextOfTest& rank, Complaints& found) -> Result<void> {
        check_bits_of_chunks(rank, found);
        return rank.group.status();
      });
  EXPECT_EQ(complaints, "");
}

TEST_P(FusedAcrossHosts, AnAllReduceSaysWhatRuns) {
  const std::string complaints =
      on_ranks(quick_config(), [](RankContextOfTest& rank, Complaints& found) -> Result<void> {
        const Problem problem{.op = Op::kMatmulAllReduce,
                              .a = {600L * rank.group.size(), rank.group.size()},
                              .n = {520},
                              .ranks = rank.group.size()};
        RankRun run(problem, rank.group, rank.device, rank.stream);
        const OpReport report = harness::take(run.call(Algorithm::kAuto));
        harness::take(rank.stream.synchronize());
        EXPECT_EQ(report.reason, fmt::format("rows cross between {} hosts beside the products; owners send "
                                             "their sums to the other hosts",
                                             rank.group.num_hosts()));
        const std::string text = program_text(report);
        for (const char* const step : {": send sums", ": await sums of host"}) {
          if (text.find(step) == std::string::npos) found.add(fmt::format("no '{}' in\n{}", step, text));
        }
        return {};
      });
  EXPECT_EQ(complaints, "");
}

/// A row of a travels once from its host to each other one, and so does a row of a partial sum. A row of an
/// all-reduce travels again as the sum.
TEST_P(FusedAcrossHosts, EachRowCrossesOnce) {
  const HostsCase& hosts = GetParam();
  const std::int64_t w = hosts.ranks();
  const std::int64_t rows = 64 * w;
  using Way = std::pair<Op, Algorithm>;
  for (const auto& [op, algorithm] :
       {Way{Op::kAllGatherMatmul, Algorithm::kPipelined}, Way{Op::kAllGatherMatmul, Algorithm::kNative},
        Way{Op::kMatmulReduceScatter, Algorithm::kPipelined},
        Way{Op::kMatmulAllReduce, Algorithm::kPipelined}}) {
    const bool gathers = op == Op::kAllGatherMatmul;
    const int times = op == Op::kMatmulAllReduce ? 2 : 1;
    const Algorithm by = algorithm;
    const Problem problem{.op = op, .a = {rows, 16 * w}, .n = {40}, .dim = 0, .ranks = hosts.ranks()};
    const std::string complaints =
        on_ranks(quick_config(), [&](RankContextOfTest& rank, Complaints& found) -> Result<void> {
          RankRun(problem, rank.group, rank.device, rank.stream).run(by, found);
          return rank.group.status();
        });
    EXPECT_EQ(complaints, "");
    const std::int64_t row_bytes = (gathers ? 16 * w : 40) * 4;
    const std::int64_t others = hosts.num_hosts - 1;
    EXPECT_EQ(hosts_.wire->num_bytes(), times * rows * row_bytes * others);
  }
}

TEST_P(FusedAcrossHosts, GatherHasTheBitsOfOneHost) {
  const HostsCase& hosts = GetParam();
  for (const Algorithm algorithm : {Algorithm::kPipelined, Algorithm::kNative}) {
    const Problem problem{.op = Op::kAllGatherMatmul,
                          .a = {300L * hosts.ranks(), 1024},
                          .n = {24},
                          .dtype = DType::kBF16,
                          .dim = 0,
                          .ranks = hosts.ranks()};
    std::vector<std::vector<std::byte>> across(static_cast<std::size_t>(hosts.ranks()));
    auto here = across;
    Complaints complaints;
    complaints.add(on_ranks(quick_config(), [&](RankContextOfTest& rank, Complaints& found) -> Result<void> {
      RankRun run(problem, rank.group, rank.device, rank.stream);
      run.run(algorithm, found);
      across[static_cast<std::size_t>(rank.group.rank())] = run.bytes();
      return {};
    }));
    test::on_ranks({{{DeviceKind::kCpu}, hosts.ranks()}}, quick_config(), complaints,
                   [&](RankContextOfTest& rank) -> Result<void> {
                     RankRun run(problem, rank.group, rank.device, rank.stream);
                     run.run(algorithm, complaints);
                     here[static_cast<std::size_t>(rank.group.rank())] = run.bytes();
                     return {};
                   });
    EXPECT_EQ(complaints.text(), "\n");
    EXPECT_EQ(across, here) << to_string(algorithm);
  }
}

/// What is cut, and what a rank refuses, ends on every rank of every host in an error that says so.
TEST_P(FusedAcrossHosts, ACutLinkAndARefusedCallEndOnAllRanks) {
  Config config = quick_config();
  config.op_timeout = std::chrono::milliseconds(700);
  const HostsCase& hosts = GetParam();
  const Problem problem{
      .op = Op::kAllGatherMatmul, .a = {8L * hosts.ranks(), 16}, .n = {4}, .dim = 0, .ranks = hosts.ranks()};
  using Way = std::pair<bool, Algorithm>;
  for (const auto& [cuts_link, algorithm] :
       {Way{true, Algorithm::kPipelined}, Way{true, Algorithm::kNative}, Way{false, Algorithm::kPipelined},
        Way{false, Algorithm::kNative}}) {
    const bool cuts = cuts_link;
    const Algorithm by = algorithm;
    const std::string complaints =
        on_ranks(config, [&](RankContextOfTest& rank, Complaints&) -> Result<void> {
          if (cuts) {
            hosts_.wire->cut();
          } else if (rank.group.rank() == 0) {
            rank.group.poison(Error(ErrorCode::kNumeric, "rank 0 has found something"), 0);
          }
          RankRun run(problem, rank.group, rank.device, rank.stream);
          Complaints unread;
          try {
            run.run(by, unread);
          } catch (const harness::Failure&) {
          }
          const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
          while (rank.group.status() && std::chrono::steady_clock::now() < end)
            std::this_thread::sleep_for(std::chrono::milliseconds(5));
          const auto status = rank.group.status();
          if (status) return fail(ErrorCode::kInternal, "a rank has heard of nothing");
          const std::string text = status.error().text();
          const char* const need = cuts ? "on another host" : "rank 0 has found something";
          if (text.find(need) == std::string::npos) return fail(ErrorCode::kInternal, text);
          return {};
        });
    EXPECT_EQ(complaints, "");
  }
}

TEST_P(FusedAcrossHosts, OpsThatNeedSharedMemoryAreRefused) {
  const std::string complaints =
      on_ranks(quick_config(), [](RankContextOfTest& rank, Complaints& found) -> Result<void> {
        const auto workspace = symm::workspace(rank.group, rank.device, 64);
        if (workspace || workspace.error().code() != ErrorCode::kUnsupported)
          found.add("symm::workspace() was not refused");
        Guarded in(rank.device, Dims{2, 4}, DType::kF32);
        Guarded out(rank.device, Dims{2 * rank.group.size(), 4}, DType::kF32);
        const auto gathered =
            coll::all_gather({.input = in.view(), .output = out.view()}, rank.group, rank.stream);
        if (gathered || gathered.error().code() != ErrorCode::kUnsupported)
          found.add("all_gather was not refused");
        const auto within = symm::workspace(rank.group.within_host(), rank.device, 64);
        if (!within) return tl::unexpected(within.error());
        std::vector<int> ranks(static_cast<std::size_t>(rank.group.size()));
        std::iota(ranks.begin(), ranks.end(), 0);
        const auto part = rank.group.subgroup(ranks, "part");
        if (part || part.error().code() != ErrorCode::kUnsupported) found.add("subgroup() was not refused");
        return rank.group.status();
      });
  EXPECT_EQ(complaints, "");
}

INSTANTIATE_TEST_SUITE_P(Hosts, FusedAcrossHosts,
                         ::testing::Values(HostsCase{2, 1}, HostsCase{2, 2}, HostsCase{2, 4}, HostsCase{3, 1},
                                           HostsCase{3, 2}, HostsCase{4, 1}, HostsCase{4, 2}),
                         name_of);

}  // namespace
}  // namespace tandem::test
