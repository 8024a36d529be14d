// Where the speeds behind predictions come from: the configuration, the folder, or a measurement that only
// `auto` has made.
#include <gtest/gtest.h>

#include <array>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <tandem/cost/folder.hpp>
#include <tandem/cost/rates.hpp>
#include <tandem/tandem.hpp>
#include <thread>
#include <vector>

#include "bootstrap/group_rates.hpp"
#include "fused/call/core_meter.hpp"
#include "support/io_folder.hpp"

namespace tandem::fused {
namespace {

namespace fs = std::filesystem;
constexpr int kWorld = 2;

struct Rank {
  std::unique_ptr<Device> device;
  std::unique_ptr<Group> group;
  std::unique_ptr<Stream> stream;
};

void on_two_ranks(const Config& config, const std::function<void(Rank&)>& body) {
  const auto store = make_in_process_store();
  std::vector<std::thread> threads;
  for (int r = 0; r < kWorld; ++r) {
    threads.emplace_back([&, r] {
      Rank rank;
      rank.device = open_device({DeviceKind::kCpu, 0}, config).value();
      rank.group =
          Group::create({.rank = r, .size = kWorld, .name = "g", .store = store, .config = config}).value();
      rank.stream = rank.device->create_stream().value();
      body(rank);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

/// What the ops would do for an `algorithm`: the reports of a gather and a scatter of 8 x 4 and 4 x 6.
std::vector<std::vector<Candidate>> candidates_of(Rank& rank, Algorithm algorithm) {
  const Tensor a = rank.device->allocate_tensor({8, 4}, DType::kF32).value();
  const Tensor b = rank.device->allocate_tensor({4, 6}, DType::kF32).value();
  const Tensor gathered = rank.device->allocate_tensor({8 * kWorld, 6}, DType::kF32).value();
  const Tensor scattered = rank.device->allocate_tensor({8 / kWorld, 6}, DType::kF32).value();
  const std::array<TensorView, 1> as{a.view()}, bs{b.view()}, outs{gathered.view()};
  AllGatherMatmulArgs gather{.a = as[0], .b = bs, .gather_dim = 0, .gather_size = 8 * kWorld, .out = outs};
  gather.algorithm = algorithm;
  MatmulReduceScatterArgs scatter{.a = as, .b = bs, .scatter_dim = 0, .out = scattered.view()};
  scatter.algorithm = algorithm;
  std::vector<std::vector<Candidate>> all;
  for (const auto& report :
       {plan(gather, *rank.group, *rank.stream), plan(scatter, *rank.group, *rank.stream)}) {
    EXPECT_TRUE(report) << report.error().to_string();
    if (report) all.emplace_back(report->candidates.begin(), report->candidates.end());
  }
  return all;
}

Config config_with(const std::string& rates, const fs::path& folder = {}) {
  Config config;
  if (!rates.empty()) config.core_rates = parse_core_rates(rates).value();
  config.tune_folder = folder.native();
  return config;
}

TEST(FusedCoreSpeeds, AreMeasuredForAllThatIsWanted) {
  const auto device = open_device({DeviceKind::kCpu, 0}, {}).value();
  std::vector<CoreRate> all;
  for (std::size_t i = 0; i < kNumCoreRates; ++i) all.push_back(static_cast<CoreRate>(i));
  const auto* const meter = device->service<CoreMeter>();
  ASSERT_NE(meter, nullptr);
  for (const int busy_cores : {1, 3}) {
    const auto rates = meter->measure(all, busy_cores, *device);
    ASSERT_TRUE(rates) << rates.error().to_string();
    for (const CoreRate rate : all) EXPECT_TRUE(rates->knows(rate)) << to_string(rate);
  }
  const std::array<CoreRate, 1> copies = {CoreRate::kCopy};
  EXPECT_FALSE(meter->measure(copies, 1, *device)->knows(CoreRate::kMmF32)) << "nobody wanted it";
}

TEST(FusedCoreSpeeds, AreMeasuredForAutoAlone) {
  const tests::Folder folder;
  on_two_ranks(config_with("", folder.path()), [&](Rank& rank) {
    for (const auto& candidates : candidates_of(rank, Algorithm::kSerial))
      EXPECT_FALSE(candidates[0].predicted_us);
    ASSERT_TRUE(rank.group->all_gather({}, "asked for serial"));
    EXPECT_TRUE(fs::is_empty(folder.path()));
    for (const auto& candidates : candidates_of(rank, Algorithm::kAuto))
      EXPECT_TRUE(candidates[0].predicted_us);
    for (const auto& candidates : candidates_of(rank, Algorithm::kPipelined))
      EXPECT_TRUE(candidates[0].predicted_us) << "known since";
  });
  const std::string device = open_device({DeviceKind::kCpu, 0}, {}).value()->description();
  EXPECT_TRUE(fs::exists(folder.path() / "rates" / cost::file_name_of(device)));
}

TEST(FusedCoreSpeeds, ThatAreGivenGiveTheSamePredictionsAlways) {
  std::array<std::vector<double>, 2> runs;
  for (std::vector<double>& predicted : runs) {
    on_two_ranks(config_with("mm=40,pack=1,copy=10,sum=5"), [&](Rank& rank) {
      for (const auto& candidates : candidates_of(rank, Algorithm::kAuto)) {
        if (rank.group->rank() == 0) predicted.push_back(candidates[0].predicted_us.value_or(-1));
      }
    });
  }
  EXPECT_EQ(runs[0], runs[1]);
  EXPECT_EQ(runs[0].size(), 2U);
}

// All of them stand in the folder, slower than any machine: they are what is predicted with.
TEST(FusedCoreSpeeds, AreTakenFromTheFolder) {
  const tests::Folder folder;
  const std::string device = open_device({DeviceKind::kCpu, 0}, {}).value()->description();
  const CoreRates slow = parse_core_rates("mm=0.001,pack=0.001,copy=0.001,sum=0.001").value();
  for (const int busy_cores : {1, kWorld})  // as many as this machine has
    ASSERT_TRUE(cost::add_rates(folder.path(), device, busy_cores, slow));
  on_two_ranks(config_with("", folder.path()), [](Rank& rank) {
    for (const auto& candidates : candidates_of(rank, Algorithm::kAuto))
      EXPECT_GT(candidates[0].predicted_us.value_or(0), 500)
          << "two products of 384 flops at one a microsecond";
    EXPECT_EQ(bootstrap::known_rates(*rank.group)[CoreRate::kMmF32], 1);
  });
}

TEST(FusedCoreSpeeds, AreMeasuredAgainWhereNothingCanBeKept) {
  const tests::Folder folder;
  tests::write_bytes(folder.path() / "file", "");
  for (const fs::path& blocked : {fs::path(), folder.path() / "file", fs::path("/proc/tables")}) {
    on_two_ranks(config_with("", blocked), [](Rank& rank) {
      for (const auto& candidates : candidates_of(rank, Algorithm::kAuto))
        EXPECT_GT(candidates[0].predicted_us.value_or(0), 0);
    });
  }
}

TEST(FusedCoreSpeeds, ThatAreDamagedInTheFolderAreReplaced) {
  const tests::Folder folder;
  const std::string device = open_device({DeviceKind::kCpu, 0}, {}).value()->description();
  const fs::path file = folder.path() / "rates" / cost::file_name_of(device);
  fs::create_directories(file.parent_path());
  tests::write_bytes(file, "no speeds");
  Config config = config_with("", folder.path());
  config.log_level = LogLevel::kOff;
  on_two_ranks(config, [](Rank& rank) {
    for (const auto& candidates : candidates_of(rank, Algorithm::kAuto))
      EXPECT_GT(candidates[0].predicted_us.value_or(0), 0);
  });
  EXPECT_NE(tests::read_bytes(file).find("mm_f32"), std::string::npos);
}

TEST(FusedCoreSpeeds, AreTheSameOnAllRanks) {
  for (int round = 0; round < 5; ++round) {
    std::array<CoreRates, kWorld> of_ranks;
    on_two_ranks(Config(), [&](Rank& rank) {
      candidates_of(rank, Algorithm::kAuto);
      of_ranks[static_cast<std::size_t>(rank.group->rank())] = bootstrap::known_rates(*rank.group);
    });
    // A rank that ended first may know less.
    for (std::size_t i = 0; i < kNumCoreRates; ++i) {
      const auto rate = static_cast<CoreRate>(i);
      if (!of_ranks[0].knows(rate) || !of_ranks[1].knows(rate)) continue;
      EXPECT_EQ(of_ranks[0][rate], of_ranks[1][rate]) << to_string(rate);
    }
    EXPECT_TRUE(of_ranks[0].knows(CoreRate::kMmF32));
  }
}

}  // namespace
}  // namespace tandem::fused
