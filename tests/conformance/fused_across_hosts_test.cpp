#include <fmt/format.h>
#include <gtest/gtest.h>

#include <numeric>

#include "conformance/fused_harness.hpp"
#include "harness/failure.hpp"
#include "harness/operands.hpp"
#include "support/thread_hosts.hpp"

namespace tandem::test {
namespace {

using harness::Op;
using harness::Problem;

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

/// One rank's part of a problem, run by one algorithm and compared with f64.
class RankRun {
 public:
  RankRun(const Problem& problem, Group& group, Device& device, Stream& stream)
      : problem_(problem),
        group_(group),
        stream_(stream),
        source_(problem),
        reference_(problem, source_),
        operands_(problem, source_, group.rank(), {.device = device}) {
    for (int i = 0; i < static_cast<int>(problem.n.size()); ++i) {
      const auto layout = problem.op == Op::kAllGatherMatmul
                              ? output_layout(operands_.gather_args(), i)
                              : output_layout(operands_.scatter_args(), group.size(), group.rank());
      out_.emplace_back(device, harness::take(layout), problem.dtype);
      views_.push_back(out_.back().view());
    }
    if (!problem.gathered) return;
    gathered_.emplace(device, harness::take(gathered_layout(operands_.gather_args())), problem.dtype);
  }

  void run(Algorithm algorithm, Complaints& complaints) {
    for (const Guarded& out : out_) out.poison();
    if (gathered_) gathered_->poison();
    const OpReport report = harness::take(call(algorithm));
    if (algorithm != Algorithm::kAuto && report.algorithm != algorithm)
      complaints.add(fmt::format("{} ran instead", to_string(report.algorithm)));
    harness::take(stream_.synchronize());
    harness::Wrong wrong;
    for (int i = 0; i < static_cast<int>(out_.size()); ++i) {
      const Guarded& out = out_[static_cast<std::size_t>(i)];
      out.download();
      reference_.compare(i, window_of_result(problem_, i, group_.rank()), out.host(), wrong);
      if (!out.guards_are_whole()) wrong.add("bytes beside a result");
    }
    if (gathered_) {
      gathered_->download();
      reference_.compare_gathered(gathered_->host(), wrong);
      if (!gathered_->guards_are_whole()) wrong.add("bytes beside gathered");
    }
    if (wrong.count > 0)
      complaints.add(fmt::format("{} {} rank {}: {} wrong; {}", to_line(problem_), to_string(algorithm),
                                 group_.rank(), wrong.count, wrong.first));
  }
  [[nodiscard]] std::vector<std::byte> bytes() const {
    std::vector<std::byte> all;
    for (const Guarded& out : out_) {
      const TensorView& view = out.host();
      const auto* begin = view.data_as<const std::byte>();
      all.insert(all.end(), begin, begin + view.size_bytes());
    }
    return all;
  }

 private:
  Result<OpReport> call(Algorithm algorithm) {
    if (problem_.op == Op::kAllGatherMatmul) {
      AllGatherMatmulArgs args = operands_.gather_args();
      args.out = views_;
      args.algorithm = algorithm;
      if (gathered_) args.gathered = gathered_->view();
      return fused_all_gather_matmul(args, group_, stream_);
    }
    MatmulReduceScatterArgs args = operands_.scatter_args();
    args.out = views_.front();
    args.algorithm = algorithm;
    return fused_matmul_reduce_scatter(args, group_, stream_);
  }

  Problem problem_;
  Group& group_;
  Stream& stream_;
  harness::GeneratedTensors source_;
  harness::Reference reference_;
  harness::RankOperands operands_;
  std::vector<Guarded> out_;
  std::vector<TensorView> views_;
  std::optional<Guarded> gathered_;
};

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

std::vector<Problem> problems(int ranks) {
  const std::int64_t w = ranks;
  std::vector<Problem> all;
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const auto add = [&](Problem problem) {
      problem.dtype = dtype;
      problem.ranks = ranks;
      all.push_back(problem);
    };
    for (const bool gathered : {false, true}) {
      add({.op = Op::kAllGatherMatmul, .a = {2 * w, 24}, .n = {9}, .dim = 0, .gathered = gathered});
      add({.op = Op::kAllGatherMatmul, .a = {3 * w - 1, 24}, .n = {9, 5}, .dim = 0, .gathered = gathered});
      add({.op = Op::kAllGatherMatmul, .a = {3, 5 * w - 2, 16}, .n = {7}, .dim = 1, .gathered = gathered});
      add({.op = Op::kAllGatherMatmul, .a = {5, 4 * w}, .n = {7}, .dim = 1, .gathered = gathered});
      add({.op = Op::kAllGatherMatmul, .a = {2, 3, 4 * w - 1}, .n = {7, 3}, .dim = 2, .gathered = gathered});
    }
    add({.op = Op::kAllGatherMatmul, .a = {1, 24}, .n = {9}, .dim = 0});
    add({.op = Op::kAllGatherMatmul, .a = {200 * w - 7, 2048}, .n = {8}, .dim = 0, .bias = true});
    for (const coll::ReduceOp reduce : {coll::ReduceOp::kSum, coll::ReduceOp::kAvg}) {
      add({.op = Op::kMatmulReduceScatter, .a = {2 * w, 8 * w}, .n = {9}, .dim = 0, .reduce = reduce});
      add({.op = Op::kMatmulReduceScatter, .a = {3 * w - 1, 8 * w}, .n = {9}, .dim = 0, .reduce = reduce});
      add({.op = Op::kMatmulReduceScatter, .a = {3, 5 * w - 2, 8 * w}, .n = {7}, .dim = 1, .reduce = reduce});
      add({.op = Op::kMatmulReduceScatter, .a = {6, 8 * w}, .n = {4 * w - 1}, .dim = 1, .reduce = reduce});
    }
    add({.op = Op::kMatmulReduceScatter, .a = {1, 8 * w}, .n = {9}, .dim = 0});
    add({.op = Op::kMatmulReduceScatter, .a = {200 * w - 7, 8 * w}, .n = {2048}, .dim = 0, .bias = true});
  }
  return all;
}

TEST_P(FusedAcrossHosts, IsRightForEveryOpTypeDimAndAlgorithm) {
  const std::string complaints =
      on_ranks(quick_config(), [](RankContextOfTest& rank, Complaints& found) -> Result<void> {
        EXPECT_EQ(rank.group.num_hosts(), GetParam().num_hosts);
        for (const Problem& problem : problems(rank.group.size())) {
          RankRun run(problem, rank.group, rank.device, rank.stream);
          for (const Algorithm algorithm : {Algorithm::kSerial, Algorithm::kPipelined, Algorithm::kAuto})
            run.run(algorithm, found);
        }
        return rank.group.status();
      });
  EXPECT_EQ(complaints, "");
  EXPECT_EQ(hosts_.wire->num_left(), 0U) << "messages that nobody has taken";
}

/// A row of a travels once from its host to each other one, and so does a row of a partial sum.
TEST_P(FusedAcrossHosts, EachRowCrossesOnce) {
  const HostsCase& hosts = GetParam();
  const std::int64_t w = hosts.ranks();
  const std::int64_t rows = 64 * w;
  for (const Op op : {Op::kAllGatherMatmul, Op::kMatmulReduceScatter}) {
    const bool gathers = op == Op::kAllGatherMatmul;
    const Problem problem{.op = op, .a = {rows, 16 * w}, .n = {40}, .dim = 0, .ranks = hosts.ranks()};
    const std::string complaints =
        on_ranks(quick_config(), [&](RankContextOfTest& rank, Complaints& found) -> Result<void> {
          RankRun(problem, rank.group, rank.device, rank.stream).run(Algorithm::kPipelined, found);
          return rank.group.status();
        });
    EXPECT_EQ(complaints, "");
    const std::int64_t row_bytes = (gathers ? 16 * w : 40) * 4;
    const std::int64_t others = hosts.num_hosts - 1;
    EXPECT_EQ(hosts_.wire->num_bytes(), rows * row_bytes * others);
  }
}

TEST_P(FusedAcrossHosts, GatherHasTheBitsOfOneHost) {
  const HostsCase& hosts = GetParam();
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
    run.run(Algorithm::kPipelined, found);
    across[static_cast<std::size_t>(rank.group.rank())] = run.bytes();
    return {};
  }));
  test::on_ranks({{{DeviceKind::kCpu}, hosts.ranks()}}, quick_config(), complaints,
                 [&](RankContextOfTest& rank) -> Result<void> {
                   RankRun run(problem, rank.group, rank.device, rank.stream);
                   run.run(Algorithm::kPipelined, complaints);
                   here[static_cast<std::size_t>(rank.group.rank())] = run.bytes();
                   return {};
                 });
  EXPECT_EQ(complaints.text(), "\n");
  EXPECT_EQ(across, here);
}

/// What is cut, and what a rank refuses, ends on every rank of every host in an error that says so.
TEST_P(FusedAcrossHosts, ACutLinkAndARefusedCallEndOnAllRanks) {
  Config config = quick_config();
  config.op_timeout = std::chrono::milliseconds(700);
  const HostsCase& hosts = GetParam();
  const Problem problem{
      .op = Op::kAllGatherMatmul, .a = {8L * hosts.ranks(), 16}, .n = {4}, .dim = 0, .ranks = hosts.ranks()};
  for (const bool cuts : {true, false}) {
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
            run.run(Algorithm::kPipelined, unread);
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
                                           HostsCase{3, 2}, HostsCase{4, 1}),
                         name_of);

}  // namespace
}  // namespace tandem::test
