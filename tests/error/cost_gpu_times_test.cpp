// Files of what was measured on GPUs: what is put in comes out; what cannot be used is passed over with a
// line that says why, and replaced.
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>
#include <tandem/bootstrap/group.hpp>
#include <tandem/cost/folder.hpp>
#include <tandem/cost/gpu_times.hpp>
#include <thread>
#include <vector>

#include "support/io_folder.hpp"

namespace tandem::testing {
namespace {

namespace fs = std::filesystem;
using cost::GpuProbe;
using cost::GpuTimes;

/// As many us as the probe's number, and `more`.
GpuTimes times_of(double more) {
  GpuTimes times;
  for (std::size_t i = 0; i < cost::kNumGpuProbes; ++i)
    times.set(static_cast<GpuProbe>(i), static_cast<double>(i) + more);
  return times;
}

class CostGpuTimes : public ::testing::Test {
 protected:
  [[nodiscard]] fs::path file(const std::string& device = "d", int ranks = 2) const {
    return folder_.path() / "gpus" / cost::file_name_of(device + ", " + std::to_string(ranks) + " ranks");
  }
  [[nodiscard]] GpuTimes read(const std::string& device = "d", int ranks = 2) const {
    const cost::FoundGpuTimes found = cost::read_gpu_times(folder_.path(), device, ranks);
    EXPECT_EQ(found.warning, "");
    return found.times;
  }
  tests::Folder folder_;
};

TEST_F(CostGpuTimes, AreKeptByDeviceAndNumberOfRanks) {
  GpuTimes few;
  few.set(GpuProbe::kBarrier, 8.25);
  ASSERT_TRUE(cost::write_gpu_times(folder_.path(), "d", 2, times_of(0.5)));
  ASSERT_TRUE(cost::write_gpu_times(folder_.path(), "d", 4, few));
  ASSERT_TRUE(cost::write_gpu_times(folder_.path(), "e", 2, times_of(7)));
  EXPECT_EQ(read(), times_of(0.5));
  EXPECT_EQ(read("d", 4), few);
  EXPECT_FALSE(read("d", 4).knows(GpuProbe::kMemory));
  EXPECT_EQ(read("e"), times_of(7));
  EXPECT_TRUE(read("d", 3).is_empty());
  EXPECT_TRUE(cost::read_gpu_times("", "d", 2).times.is_empty());
  ASSERT_TRUE(cost::write_gpu_times(folder_.path(), "d", 2, few));
  EXPECT_EQ(read(), few) << "a file is written as a whole";
}

TEST_F(CostGpuTimes, HaveOneNameForEachProbe) {
  for (std::size_t i = 0; i < cost::kNumGpuProbes; ++i) {
    const auto probe = static_cast<GpuProbe>(i);
    EXPECT_EQ(cost::parse_gpu_probe(cost::to_string(probe)), probe) << cost::to_string(probe);
  }
  EXPECT_FALSE(cost::parse_gpu_probe("barriers"));
}

TEST_F(CostGpuTimes, ThatCannotBeUsedAreNamedAndReplaced) {
  ASSERT_TRUE(cost::write_gpu_times(folder_.path(), "d", 2, times_of(0.5)));
  const std::string good = tests::read_bytes(file());
  const auto changed = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    const auto at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from << " in " << text;
    return text.replace(at, from.size(), to);
  };
  const struct {
    std::string text;
    const char* piece;
  } kFiles[] = {{"", "no JSON"},
                {good.substr(0, good.size() / 2), "no JSON"},
                {"[]", "is not used"},
                {changed("\"format\": 1", "\"format\": 2"), "format 2 of tandem"},
                {changed("\"library\": \"", "\"library\": \"9"), "need format 1 of tandem"},
                {changed("\"barrier\"", "\"fence\""), "an unknown probe 'fence'"},
                {changed("18.5", "-18.5"), "'barrier' takes -18.5 us, need 0.001 to"},
                {changed("18.5", "\"18\""), "'barrier' takes \"18\" us"},
                {changed("\"us\":18.5", "\"ms\":18.5"), "us"},
                {changed("18.5", std::string(30'000, '[') + std::string(30'000, ']')), "an object or a list"},
                {good.substr(0, good.find('[')) + "[]}", "no times"},
                {std::string((64 << 10) + 1, ' '), "need at most 65536"}};
  for (const auto& one : kFiles) {
    tests::write_bytes(file(), one.text);
    const cost::FoundGpuTimes found = cost::read_gpu_times(folder_.path(), "d", 2);
    EXPECT_TRUE(found.times.is_empty()) << one.text.substr(0, 80);
    EXPECT_NE(found.warning.find(file().native()), std::string::npos) << found.warning;
    EXPECT_NE(found.warning.find(one.piece), std::string::npos) << found.warning;
    ASSERT_TRUE(cost::write_gpu_times(folder_.path(), "d", 2, times_of(3))) << one.piece;
    EXPECT_EQ(read(), times_of(3)) << one.piece;
  }
}

TEST_F(CostGpuTimes, OfAnotherDeviceOfTheSameNameStay) {
  ASSERT_TRUE(cost::write_gpu_times(folder_.path(), "GPU, 132 SMs", 2, times_of(1)));
  EXPECT_NE(cost::read_gpu_times(folder_.path(), "gpu 132 sms", 2).warning.find("it is of the device \"GPU,"),
            std::string::npos);
  const auto written = cost::write_gpu_times(folder_.path(), "gpu 132 sms", 2, times_of(2));
  ASSERT_FALSE(written);
  EXPECT_EQ(written.error().code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(read("GPU, 132 SMs"), times_of(1));
}

TEST_F(CostGpuTimes, NeedAFolderThatCanBeWritten) {
  tests::write_bytes(folder_.path() / "file", "");
  const fs::path blocked = folder_.path() / "file" / "tables";
  const auto written = cost::write_gpu_times(blocked, "d", 2, times_of(1));
  ASSERT_FALSE(written);
  EXPECT_EQ(written.error().code(), ErrorCode::kDriver);
  EXPECT_NE(written.error().text().find(blocked.native()), std::string::npos) << written.error().text();
  for (const auto& refused : {cost::write_gpu_times("", "d", 2, times_of(1)),
                              cost::write_gpu_times(folder_.path(), "\xff", 2, times_of(1))})
    EXPECT_EQ(refused.error().code(), ErrorCode::kInvalidArgument);
}

/// What each rank of a group finds whose rank r looks into folders[r].
std::vector<GpuTimes> found_by_ranks(const std::vector<fs::path>& folders, const std::string& device) {
  const auto store = make_in_process_store();
  std::vector<GpuTimes> found(folders.size());
  std::vector<std::thread> ranks;
  for (std::size_t r = 0; r < folders.size(); ++r) {
    ranks.emplace_back([&, r] {
      Config config;
      config.tune_folder = folders[r].native();
      const auto group = Group::create({.rank = static_cast<int>(r),
                                        .size = static_cast<int>(folders.size()),
                                        .name = "g",
                                        .store = store,
                                        .config = config,
                                        .device = device});
      ASSERT_TRUE(group) << group.error().to_string();
      const std::vector<int> others = {1, 0};
      const auto subgroup = (*group)->subgroup(others, "turned");
      ASSERT_TRUE(subgroup) << subgroup.error().to_string();
      EXPECT_EQ((*subgroup)->gpu_times(), (*group)->gpu_times());
      found[r] = (*group)->gpu_times();
    });
  }
  for (std::thread& rank : ranks) rank.join();
  return found;
}

TEST_F(CostGpuTimes, OfRankZeroHoldForTheGroup) {
  const fs::path other = folder_.path() / "other";
  ASSERT_TRUE(cost::write_gpu_times(folder_.path(), "d", 2, times_of(1)));
  ASSERT_TRUE(cost::write_gpu_times(other, "d", 2, times_of(2)));
  EXPECT_EQ(found_by_ranks({folder_.path(), other}, "d"), std::vector(2, times_of(1)));
  EXPECT_EQ(found_by_ranks({other, folder_.path()}, "d"), std::vector(2, times_of(2)));
  EXPECT_EQ(found_by_ranks({folder_.path() / "none", other}, "d"), std::vector(2, GpuTimes()));
  EXPECT_EQ(found_by_ranks({folder_.path(), folder_.path()}, ""), std::vector(2, GpuTimes()));
}

}  // namespace
}  // namespace tandem::testing
