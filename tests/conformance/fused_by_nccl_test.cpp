#include <fmt/format.h>
#include <gtest/gtest.h>

#include <tandem/transport/nccl.hpp>

#include "conformance/all_reduces_across_hosts.hpp"
#include "support/thread_hosts.hpp"

namespace tandem::test {
namespace {

using harness::Op;
using harness::Problem;
using harness::Scales;

/// Ranks of two hosts as threads, each on a simulated GPU, and NCCL (tests/simulated_gpu/nccl.cpp) between
/// the hosts.
class FusedByNccl : public ::testing::TestWithParam<int> {
 protected:
  using Body = std::function<Result<void>(RankContextOfTest&)>;

  void SetUp() override {
    if (count_cuda_devices() < 2) GTEST_SKIP() << "fewer than two simulated GPUs (SIMULATED_GPUS=2)";
  }
  /// Every rank's result, with a group, a device and a stream of its own.
  [[nodiscard]] std::vector<Result<void>> on_ranks(std::chrono::milliseconds timeout,
                                                   const Body& body) const {
    ThreadHosts hosts{.num_hosts = 2, .ranks_per_host = GetParam(), .config = quick_config()};
    hosts.config.nccl_library = TANDEM_SIMULATED_NCCL;
    hosts.config.op_timeout = timeout;
    std::vector<std::unique_ptr<Device>> devices(static_cast<std::size_t>(hosts.size()));
    hosts.connect = [&](GroupOptions& options) -> Result<void> {
      std::unique_ptr<Device>& device = devices[static_cast<std::size_t>(options.rank)];
      auto opened = open_device({DeviceKind::kCuda, options.rank % count_cuda_devices()}, options.config);
      if (!opened) return tl::unexpected(opened.error());
      device = *std::move(opened);
      auto transport = open_nccl(options.rank, options.size, *options.store, *device);
      if (!transport) return tl::unexpected(transport.error());
      options.transport = *std::move(transport);
      return {};
    };
    return hosts.run([&](Group& group) -> Result<void> {
      try {
        Device& device = *devices[static_cast<std::size_t>(group.rank())];
        const auto stream = harness::take(device.create_stream());
        RankContextOfTest rank{group, device, *stream};
        return body(rank);
      } catch (const harness::Failure& failure) {
        group.poison(failure.error(), group.rank());
        return tl::unexpected(failure.error());
      }
    });
  }
  [[nodiscard]] static Problem gather_of(int ranks) {
    return {.op = Op::kAllGatherMatmul, .a = {4L * ranks, 16}, .n = {8}, .dim = 0, .ranks = ranks};
  }
};

constexpr std::chrono::milliseconds kLong(60'000);
constexpr std::chrono::milliseconds kShort(800);

TEST_P(FusedByNccl, IsRightForEveryOpTypeDimAndAlgorithm) {
  const auto results = on_ranks(kLong, [](RankContextOfTest& rank) -> Result<void> {
    Complaints complaints;
    for (const Problem& problem : problems_across_hosts(rank.group.size())) {
      if (numel(problem.a) > 1000) continue;  // minutes of a simulated GPU
      RankRunAcrossHosts run(problem, rank.group, rank.device, rank.stream);
      for (const Algorithm algorithm : {Algorithm::kSerial, Algorithm::kPipelined})
        run.run(algorithm, complaints);
    }
    EXPECT_EQ(complaints.text(), "");
    return rank.group.status();
  });
  for (const auto& result : results) EXPECT_TRUE(result) << result.error().to_string();
}

/// Products that wait for what NCCL brings, in one chunk a rank and in several, and with an uneven shard.
TEST_P(FusedByNccl, NativeGathersAreRight) {
  const auto results = on_ranks(kLong, [](RankContextOfTest& rank) -> Result<void> {
    Complaints complaints;
    const std::int64_t w = rank.group.size();
    std::vector<Problem> problems = {{.a = {600, 64}, .n = {16, 8}, .bias = true, .gathered = true},
                                     {.a = {4, 160 * w, 64}, .n = {16}, .dim = 1},
                                     {.a = {1024 * w, 256}, .n = {8}}};
    if (GetParam() == 1) problems.push_back({.a = {599, 64}, .n = {16}, .gathered = true});
    for (Problem& problem : problems) problem.dtype = DType::kBF16;
    for (const Scales scales : {Scales::kTensor, Scales::kRow, Scales::kBlock}) {
      problems.push_back({.a = {256 * w, 128}, .n = {16}, .dtype = DType::kF8E4M3, .scales = scales});
      problems.back().b_is_column_major = true;
      if (w == 2) problems.back().n.push_back(16);
    }
    for (Problem& problem : problems) {
      problem.op = Op::kAllGatherMatmul;
      problem.ranks = rank.group.size();
      if (problem.a.size() == 2) problem.dim = 0;
      RankRunAcrossHosts run(problem, rank.group, rank.device, rank.stream);
      const int times = numel(problem.a) > 100'000 ? 1 : 3;  // both slots of the inbox, and the first again
      for (int i = 0; i < times; ++i) run.run(Algorithm::kNative, complaints);
    }
    EXPECT_EQ(complaints.text(), "");
    return rank.group.status();
  });
  for (const auto& result : results) EXPECT_TRUE(result) << result.error().to_string();
}

TEST_P(FusedByNccl, AllReducesHaveEveryOptionAndCrossInChunks) {
  AllReducesAcrossHosts all_reduces(2 * GetParam());
  const auto results = on_ranks(kLong, [&](RankContextOfTest& rank) -> Result<void> {
    Complaints complaints;
    if (auto ran = all_reduces.run(rank, false, complaints); !ran) return ran;
    check_bits_of_chunks(rank, complaints);
    EXPECT_EQ(complaints.text(), "");
    return rank.group.status();
  });
  for (const auto& result : results) EXPECT_TRUE(result) << result.error().to_string();
}

TEST_P(FusedByNccl, ALateRankIsNamed) {
  const auto results = on_ranks(kShort, [](RankContextOfTest& rank) -> Result<void> {
    RankRunAcrossHosts run(gather_of(rank.group.size()), rank.group, rank.device, rank.stream);
    run.run_only(Algorithm::kPipelined);
    if (rank.group.host() == 1) {  // hears of it from the other host
      const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
      while (rank.group.status() && std::chrono::steady_clock::now() < end)
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      return rank.group.status();
    }
    run.run_only(Algorithm::kPipelined);
    return {};
  });
  const int partner = GetParam();
  EXPECT_FALSE(results[0]);
  if (results[0]) return;
  const std::string text = results[0].error().to_string();
  if (partner == 1) {
    EXPECT_NE(text.find("rank 0 waits for 256 bytes of rank 1"), std::string::npos) << text;
    EXPECT_NE(text.find("on another host, and gave up after"), std::string::npos) << text;
  }
  for (const auto& result : results) EXPECT_FALSE(result);
}

TEST_P(FusedByNccl, AnotherCallIsAMismatch) {
  const auto results = on_ranks(kShort, [](RankContextOfTest& rank) -> Result<void> {
    const int w = rank.group.size();
    Problem problem{.op = Op::kMatmulReduceScatter, .a = {4L * w, 8L * w}, .n = {8}, .dim = 0, .ranks = w};
    problem.reduce = rank.group.host() == 0 ? coll::ReduceOp::kSum : coll::ReduceOp::kAvg;
    RankRunAcrossHosts run(problem, rank.group, rank.device, rank.stream);
    run.run_only(Algorithm::kSerial);
    return {};
  });
  for (const auto& result : results) {
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().code(), ErrorCode::kMismatch) << result.error().to_string();
    EXPECT_NE(result.error().text().find("do not make the same call"), std::string::npos);
  }
}

TEST_P(FusedByNccl, RecordedCallsAreRefusedAndTheNextIsRight) {
  const auto results = on_ranks(kLong, [](RankContextOfTest& rank) -> Result<void> {
    const int w = rank.group.size();
    const Problem all_reduce{.op = Op::kMatmulAllReduce, .a = {4L * w, 8L * w}, .n = {8}, .ranks = w};
    Complaints complaints;
    for (const Problem& problem : {gather_of(w), all_reduce}) {
      RankRunAcrossHosts run(problem, rank.group, rank.device, rank.stream);
      run.run(Algorithm::kPipelined, complaints);
      harness::take(rank.stream.begin_capture());
      const auto recorded = run.call(Algorithm::kPipelined);
      static_cast<void>(rank.stream.end_capture());
      if (recorded || recorded.error().text().find("cannot be recorded") == std::string::npos)
        complaints.add(recorded ? "it was recorded" : recorded.error().to_string());
    }
    EXPECT_EQ(complaints.text(), "");
    return {};
  });
  for (const auto& result : results) EXPECT_TRUE(result) << result.error().to_string();
}

TEST_P(FusedByNccl, AStreamMayOutliveTheGroup) {
  std::vector<std::unique_ptr<Stream>> streams(static_cast<std::size_t>(2 * GetParam()));
  const auto results = on_ranks(kLong, [&](RankContextOfTest& rank) -> Result<void> {
    std::unique_ptr<Stream>& stream = streams[static_cast<std::size_t>(rank.group.rank())];
    stream = harness::take(rank.device.create_stream());
    RankRunAcrossHosts run(gather_of(rank.group.size()), rank.group, rank.device, *stream);
    for (int i = 0; i < 3; ++i) harness::take(run.call(Algorithm::kPipelined));
    harness::take(stream->synchronize());
    return {};
  });
  for (const auto& result : results) EXPECT_TRUE(result) << result.error().to_string();
  for (const auto& stream : streams) EXPECT_TRUE(stream->synchronize());
}

TEST(FusedByNcclErrors, DevicesAndRanksThatItDoesNotServe) {
  const auto store = make_in_process_store();
  const Config config;
  const auto cpu = harness::take(open_device({DeviceKind::kCpu, 0}, config));
  const auto on_cpu = open_nccl(0, 1, *store, *cpu);
  ASSERT_FALSE(on_cpu);
  EXPECT_EQ(on_cpu.error().to_string(),
            "Unsupported: NCCL: cpu:0 is no GPU; ranks on CPUs cross hosts by MPI (open_mpi)");
  const auto outside = open_nccl(2, 2, *store, *cpu);
  ASSERT_FALSE(outside);
  EXPECT_EQ(outside.error().to_string(), "InvalidArgument: NCCL: rank 2 of 2, need 0 <= rank < size");
}

INSTANTIATE_TEST_SUITE_P(RanksOfAHost, FusedByNccl, ::testing::Values(1, 2));

}  // namespace
}  // namespace tandem::test
