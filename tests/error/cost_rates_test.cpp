// Files of speeds: what is put in comes out; what cannot be used is passed over with a line that says why.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <tandem/base/unique_fd.hpp>
#include <tandem/cost/folder.hpp>
#include <tandem/cost/rates.hpp>
#include <thread>
#include <vector>

#include "support/io_folder.hpp"

namespace tandem::testing {
namespace {

namespace fs = std::filesystem;

CoreRates rates_of(const std::string& text) {
  return parse_core_rates(text).value();
}

/// A list in a list, and so on.
std::string nested(std::size_t depth) {
  return std::string(depth, '[') + std::string(depth, ']');
}

class CostRates : public ::testing::Test {
 protected:
  [[nodiscard]] fs::path file(const std::string& device = "d") const {
    return folder_.path() / "rates" / cost::file_name_of(device);
  }
  [[nodiscard]] CoreRates read(int busy_cores, const std::string& device = "d") const {
    const cost::FoundRates found = cost::read_rates(folder_.path(), device, busy_cores);
    EXPECT_EQ(found.warning, "");
    return found.rates;
  }
  /// The warning about a file with this text.
  [[nodiscard]] std::string warning_for(const std::string& text) const {
    fs::create_directories(file().parent_path());
    tests::write_bytes(file(), text);
    const cost::FoundRates found = cost::read_rates(folder_.path(), "d", 2);
    EXPECT_EQ(found.rates, CoreRates()) << text;
    EXPECT_NE(found.warning.find(file().native()), std::string::npos) << found.warning;
    return found.warning;
  }
  tests::Folder folder_;
};

TEST_F(CostRates, AreKeptByDeviceAndBusyCores) {
  ASSERT_TRUE(cost::add_rates(folder_.path(), "d", 2, rates_of("mm=190,copy=6")));
  ASSERT_TRUE(cost::add_rates(folder_.path(), "d", 1, rates_of("mm=200")));
  ASSERT_TRUE(cost::add_rates(folder_.path(), "e", 2, rates_of("mm=10")));
  ASSERT_TRUE(cost::add_rates(folder_.path(), "d", 2, rates_of("mm_f32=95,sum=3")));
  EXPECT_EQ(read(2), rates_of("mm=190,copy=6,mm_f32=95,sum=3")) << "what comes later counts, the rest stays";
  EXPECT_EQ(read(1), rates_of("mm=200"));
  EXPECT_EQ(read(2, "e"), rates_of("mm=10"));
  EXPECT_EQ(read(3), CoreRates());
  EXPECT_EQ(cost::read_rates("", "d", 2).rates, CoreRates());
  EXPECT_EQ(cost::read_rates(folder_.path() / "none", "d", 2).warning, "");
}

TEST_F(CostRates, WaitForNoOtherProgramForLong) {
  ASSERT_TRUE(cost::add_rates(folder_.path(), "d", 2, rates_of("copy=6")));
  const std::filesystem::path name =
      file().parent_path() / (".lock-" + std::to_string(static_cast<unsigned>(::geteuid())));
  const UniqueFd lock(::open(name.c_str(), O_RDWR | O_CLOEXEC));
  ASSERT_EQ(::flock(lock.get(), LOCK_EX), 0);
  const auto added = cost::add_rates(folder_.path(), "d", 2, rates_of("copy=7"));
  ASSERT_FALSE(added);
  EXPECT_EQ(added.error().code(), ErrorCode::kTimeout);
  EXPECT_EQ(added.error().text(), name.native() + ": another program has had it locked for 200 ms");
  EXPECT_EQ(read(2), rates_of("copy=6"));
  ASSERT_EQ(::flock(lock.get(), LOCK_UN), 0);
  EXPECT_TRUE(cost::add_rates(folder_.path(), "d", 2, rates_of("copy=7")));
}

TEST_F(CostRates, ThatCannotBeUsedAreNamed) {
  ASSERT_TRUE(cost::add_rates(folder_.path(), "d", 2, rates_of("copy=6")));
  const std::string good = tests::read_bytes(file());
  const auto changed = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    const auto at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from << " in " << text;
    return text.replace(at, from.size(), to);
  };
  const std::string deep = nested(30'000);
  const struct {
    std::string text;
    const char* piece;
  } kFiles[] = {{"", "no JSON"},
                {good.substr(0, good.size() / 2), "no JSON"},
                {"[]", "is not used"},
                {"{}", "format"},
                {changed("\"format\": 1", "\"format\": 2"), "format 2 of tandem"},
                {changed("\"library\": \"", "\"library\": \"9"), "need format 1 of tandem"},
                {changed("\"device\": \"d\"", "\"device\": \"x\""), "it is of the device \"x\""},
                {changed("\"copy\"", "\"speed\""), "an unknown speed 'speed'"},
                {changed(":6.0", ":-6.0"), "copy is -6.0, need 0.001 to"},
                {changed(":6.0", ":\"6\""), "copy is \"6\", need"},
                {changed(":6.0", ":1e9"), "copy is 1000000000.0, need"},
                {changed("\"busy_cores\":2", "\"busy_cores\":0"), "busy_cores is 0, need 1 to"},
                {changed("\"busy_cores\":2", "\"busy_cores\":2.5"), "busy_cores is 2.5, need 1 to"},
                {changed("\"busy_cores\"", "\"cores\""), "busy_cores"},
                {changed("1", deep), "format an object or a list of"},
                {changed("6.0", deep), "copy is an object or a list, need"},
                {changed("2", deep), "busy_cores is an object or a list"},
                {std::string((64 << 10) + 1, ' '), "need at most 65536"}};
  for (const auto& file : kFiles) {
    const std::string warning = warning_for(file.text);
    EXPECT_NE(warning.find(file.piece), std::string::npos) << warning;
  }
  ASSERT_TRUE(cost::add_rates(folder_.path(), "d", 2, rates_of("copy=7"))) << "too large: replaced";
  EXPECT_EQ(read(2), rates_of("copy=7"));
}

TEST_F(CostRates, OfAnotherDeviceOfTheSameNameStay) {
  ASSERT_TRUE(cost::add_rates(folder_.path(), "CPU, 2 cores", 2, rates_of("copy=6")));
  const auto added = cost::add_rates(folder_.path(), "cpu 2 cores", 2, rates_of("copy=7"));
  ASSERT_FALSE(added);
  EXPECT_EQ(added.error().code(), ErrorCode::kInvalidArgument);
  EXPECT_NE(added.error().text().find("it is of the device \"CPU, 2 cores\""), std::string::npos)
      << added.error().text();
  EXPECT_EQ(read(2, "CPU, 2 cores"), rates_of("copy=6"));
}

TEST_F(CostRates, NeedAFolderThatCanBeWritten) {
  tests::write_bytes(folder_.path() / "file", "");
  for (const fs::path& blocked : {folder_.path() / "file" / "tables", fs::path("/proc/tables")}) {
    const auto added = cost::add_rates(blocked, "d", 2, rates_of("copy=6"));
    ASSERT_FALSE(added) << blocked;
    EXPECT_EQ(added.error().code(), ErrorCode::kDriver);
    EXPECT_NE(added.error().text().find(blocked.native()), std::string::npos) << added.error().text();
  }
  for (const auto& added : {cost::add_rates("", "d", 2, {}), cost::add_rates(folder_.path(), "\xff", 2, {})})
    EXPECT_EQ(added.error().code(), ErrorCode::kInvalidArgument);
}

TEST_F(CostRates, WritersAtOnceLoseNothing) {
  std::vector<std::thread> writers;
  for (int w = 1; w <= 4; ++w) {
    writers.emplace_back([&, w] {
      for (const char* text : {"mm=190", "copy=6", "sum=3"})
        EXPECT_TRUE(cost::add_rates(folder_.path(), "d", w, rates_of(text)));
    });
  }
  for (auto& writer : writers) writer.join();
  for (int w = 1; w <= 4; ++w) EXPECT_EQ(read(w), rates_of("mm=190,copy=6,sum=3")) << w;
  for (const auto& entry : fs::directory_iterator(file().parent_path()))
    EXPECT_TRUE(entry.path().filename() == "d.json" || entry.path().filename().native().starts_with(".lock-"))
        << entry.path();
}

}  // namespace
}  // namespace tandem::testing
