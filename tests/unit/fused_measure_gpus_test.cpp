// When GPUs are measured, and when not: once for a kind of GPU and a number of ranks, by ranks that have one
// each.
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <tandem/cost/gpu_times.hpp>
#include <tandem/tandem.hpp>
#include <thread>
#include <vector>

#include "bootstrap/group_rates.hpp"
#include "cost/gpu_fit.hpp"
#include "fused/call/gpu_probes.hpp"
#include "support/io_folder.hpp"

namespace tandem::fused {
namespace {

namespace fs = std::filesystem;
using cost::GpuProbe;
using cost::GpuTimes;

constexpr int kWorld = 2;
/// Of which simulated GPUs make short work.
constexpr ProbeSizes kSmall = {.rows = 128,
                               .columns = 256,
                               .short_k = 64,
                               .few_rows = 64,
                               .large_rows = 128,
                               .large = 256,
                               .short_bytes = 16 << 10,
                               .few_bytes = 1 << 10,
                               .memory_bytes = 1 << 20,
                               .rounds = 3};

/// Rank r of a group is on devices[r], and looks into `config`'s folder. What each knows after a measurement.
std::vector<GpuTimes> measured_on(const std::vector<DeviceId>& devices, const Config& config) {
  const auto store = make_in_process_store();
  std::vector<GpuTimes> known(devices.size());
  std::vector<std::thread> ranks;
  for (std::size_t r = 0; r < devices.size(); ++r) {
    ranks.emplace_back([&, r] {
      const auto device = open_device(devices[r], config).value();
      const auto group = Group::create({.rank = static_cast<int>(r),
                                        .size = static_cast<int>(devices.size()),
                                        .name = "g",
                                        .store = store,
                                        .config = config,
                                        .device = device->description()})
                             .value();
      const auto done = measure_gpus_of(kSmall, *group, *device);
      ASSERT_TRUE(done) << done.error().to_string();
      known[r] = group->gpu_times();
      EXPECT_EQ(bootstrap::gpu_rates_of(*group).barrier_us, cost::rates_of(known[r]).barrier_us);
    });
  }
  for (std::thread& rank : ranks) rank.join();
  return known;
}

class MeasureGpus : public ::testing::Test {
 protected:
  MeasureGpus() { config_.tune_folder = folder_.path().native(); }
  [[nodiscard]] bool has_kept_anything() const { return fs::exists(folder_.path() / "gpus"); }

  tests::Folder folder_;
  Config config_;
};

TEST_F(MeasureGpus, LeavesCpusAlone) {
  EXPECT_EQ(measured_on({{DeviceKind::kCpu, 0}, {DeviceKind::kCpu, 0}}, config_),
            std::vector<GpuTimes>(kWorld));
  EXPECT_FALSE(has_kept_anything());
}

class MeasureTwoGpus : public MeasureGpus {
 protected:
  void SetUp() override {
    if (count_cuda_devices() < kWorld) GTEST_SKIP() << "needs two GPUs, real or simulated";
  }
  const std::vector<DeviceId> gpus_ = {{DeviceKind::kCuda, 0}, {DeviceKind::kCuda, 1}};
};

TEST_F(MeasureTwoGpus, KeepsWhatAllRanksAndLaterGroupsPredictWith) {
  const auto first = measured_on(gpus_, config_);
  EXPECT_EQ(first[0], first[1]);
  for (const GpuProbe probe :
       {GpuProbe::kNativeBF16Short, GpuProbe::kNativeBF16RowsLong, GpuProbe::kNativeF16Long,
        GpuProbe::kNativeF8Long, GpuProbe::kPushLong, GpuProbe::kPullShort, GpuProbe::kBarrier,
        GpuProbe::kMemory, GpuProbe::kMailboxes, GpuProbe::kGatherLong, GpuProbe::kSumShort})
    EXPECT_TRUE(first[0].knows(probe)) << to_string(probe);
  const auto device = open_device(gpus_[0], config_).value();
  EXPECT_EQ(cost::read_gpu_times(folder_.path(), device->description(), kWorld).times, first[0]);
  EXPECT_EQ(measured_on(gpus_, config_), first) << "read, not measured";
  EXPECT_TRUE(cost::read_gpu_times(folder_.path(), device->description(), kWorld + 1).times.is_empty());
}

TEST_F(MeasureTwoGpus, ReplacesAFileThatCannotBeUsed) {
  const auto first = measured_on(gpus_, config_);
  const fs::path file = fs::directory_iterator(folder_.path() / "gpus")->path();
  tests::write_bytes(file, "{}");
  config_.log_level = LogLevel::kOff;
  const auto again = measured_on(gpus_, config_);
  EXPECT_TRUE(again[0].knows(GpuProbe::kBarrier));
  EXPECT_NE(tests::read_bytes(file), "{}");
}

TEST_F(MeasureTwoGpus, MeasuresNothingWhereNoneOfItCanBeKept) {
  config_.measure_gpus = false;
  EXPECT_EQ(measured_on(gpus_, config_), std::vector<GpuTimes>(kWorld));
  config_.measure_gpus = true;
  for (const std::string& folder : {std::string(), std::string("/proc/tables")}) {
    config_.tune_folder = folder;
    EXPECT_EQ(measured_on(gpus_, config_), std::vector<GpuTimes>(kWorld)) << folder;
  }
  EXPECT_FALSE(has_kept_anything());
}

TEST_F(MeasureTwoGpus, LeavesSharedGpusAlone) {
  EXPECT_EQ(measured_on({gpus_[0], gpus_[0]}, config_), std::vector<GpuTimes>(kWorld));
  EXPECT_FALSE(has_kept_anything());
}

}  // namespace
}  // namespace tandem::fused
