// Files that hold no table, or not one for this device or version: they are passed over, with a line that
// says why.
#include <gtest/gtest.h>

#include <string>
#include <tandem/bootstrap/group.hpp>
#include <tandem/tune/folder.hpp>
#include <thread>
#include <vector>

#include "support/io_folder.hpp"

namespace tandem::testing {
namespace {

namespace fs = std::filesystem;

tune::Row row_of(std::int64_t m, double serial_us) {
  tune::Row row;
  row.key = {.op = "all_gather_matmul",
             .layout = "rows",
             .dtype = DType::kF32,
             .m = m,
             .n = 8,
             .k = 8,
             .world = 2,
             .link = "shared memory"};
  row.us = {{"serial", serial_us}, {"pipelined", 5}};
  return row;
}

class TuneFiles : public ::testing::Test {
 protected:
  /// The warning about the only file.
  std::string warning_for(const std::string& text, const std::string& name = "d.json") {
    tests::write_bytes(folder_.path() / name, text);
    const tune::Tables found = tune::read_folder(folder_.path());
    EXPECT_TRUE(found.tables.empty()) << text;
    fs::remove(folder_.path() / name);
    if (found.warnings.size() != 1) return "no single warning";
    EXPECT_NE(found.warnings[0].find((folder_.path() / name).native()), std::string::npos)
        << found.warnings[0];
    return found.warnings[0];
  }
  tests::Folder folder_;
};

TEST_F(TuneFiles, AreWrittenAndRead) {
  const auto written = tune::add_rows(folder_.path() / "a" / "b", "CPU @ 2.8GHz, 2 cores", {row_of(64, 10)});
  ASSERT_TRUE(written) << written.error().to_string();
  EXPECT_EQ(written->file.filename(), "cpu_2_8ghz_2_cores.json");
  EXPECT_EQ(written->warning, "");
  ASSERT_TRUE(
      tune::add_rows(folder_.path() / "a" / "b", "CPU @ 2.8GHz, 2 cores", {row_of(64, 20), row_of(128, 30)}));
  ASSERT_TRUE(tune::add_rows(folder_.path() / "a" / "b", "another", {row_of(64, 1)}));
  const tune::Tables found = tune::read_folder(folder_.path() / "a" / "b");
  EXPECT_TRUE(found.warnings.empty());
  ASSERT_EQ(found.tables.size(), 2U);
  EXPECT_EQ(found.tables[1].device, "CPU @ 2.8GHz, 2 cores");
  ASSERT_EQ(found.tables[1].rows.size(), 2U);
  EXPECT_EQ(found.tables[1].rows[0].us.at("serial"), 20);
}

TEST_F(TuneFiles, NoFolderIsNoTable) {
  EXPECT_TRUE(tune::read_folder("").tables.empty());
  const tune::Tables found = tune::read_folder(folder_.path() / "none");
  EXPECT_TRUE(found.tables.empty() && found.warnings.empty());
  const auto written = tune::add_rows("", "d", {});
  ASSERT_FALSE(written);
  EXPECT_EQ(written.error().code(), ErrorCode::kInvalidArgument);
}

TEST_F(TuneFiles, ThatCannotBeUsedAreNamed) {
  const std::string good = tune::to_json(tune::Table{.device = "d", .rows = {row_of(64, 10)}});
  const auto changed = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    const auto at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return text.replace(at, from.size(), to);
  };
  EXPECT_NE(warning_for("").find("no JSON"), std::string::npos);
  EXPECT_NE(warning_for(good.substr(0, good.size() / 2)).find("no JSON"), std::string::npos);
  EXPECT_NE(warning_for("[]").find("not used"), std::string::npos);
  EXPECT_NE(warning_for("{}").find("format"), std::string::npos);
  EXPECT_NE(warning_for(changed("\"format\": 1", "\"format\": 2")).find("format 2 of tandem"),
            std::string::npos);
  EXPECT_NE(warning_for(changed("\"library\": \"", "\"library\": \"9")).find("of tandem 9"),
            std::string::npos);
  EXPECT_NE(warning_for(changed("\"us\"", "\"u\"")).find("us"), std::string::npos);
  EXPECT_NE(warning_for(changed("\"serial\"", "\"native\"")).find("no time of serial"), std::string::npos);
  EXPECT_NE(warning_for(changed("10.0", "-10.0")).find("-10 us of serial"), std::string::npos);
  EXPECT_NE(warning_for(changed("\"f32\"", "\"f31\"")).find("unknown dtype 'f31'"), std::string::npos);
  EXPECT_NE(warning_for(changed("\"m\":64", "\"m\":-1")).find("a row for"), std::string::npos);
  EXPECT_NE(warning_for(changed("\"m\":64", "\"m\":\"x\"")).find("not used"), std::string::npos);
  EXPECT_NE(warning_for(good, "copied.json").find("it is of the device 'd'"), std::string::npos);
}

TEST_F(TuneFiles, ABadFileIsReplacedAndSaidSo) {
  tests::write_bytes(folder_.path() / "d.json", "not a table");
  const auto written = tune::add_rows(folder_.path(), "d", {row_of(64, 10)});
  ASSERT_TRUE(written);
  EXPECT_NE(written->warning.find("no JSON"), std::string::npos) << written->warning;
  EXPECT_EQ(tune::read_folder(folder_.path()).tables.size(), 1U);
}

TEST_F(TuneFiles, WritersAtOnceLoseNoRow) {
  std::vector<std::thread> writers;
  for (int w = 0; w < 4; ++w) {
    writers.emplace_back([&, w] {
      for (int i = 0; i < 5; ++i)
        EXPECT_TRUE(tune::add_rows(folder_.path(), "d", {row_of(std::int64_t{1} << (5 * w + i), 10)}));
    });
  }
  for (auto& writer : writers) writer.join();
  const tune::Tables found = tune::read_folder(folder_.path());
  ASSERT_EQ(found.tables.size(), 1U);
  EXPECT_EQ(found.tables[0].rows.size(), 20U);
  for (const auto& entry : fs::directory_iterator(folder_.path()))
    EXPECT_EQ(entry.path().filename(), "d.json");
  EXPECT_NE(tests::read_bytes(folder_.path() / "d.json").find("\"device\": \"d\""), std::string::npos);
}

// Ranks that see different folders, as on several hosts, choose by rank 0's.
TEST_F(TuneFiles, OfRankZeroCountForAGroup) {
  ASSERT_TRUE(tune::add_rows(folder_.path(), "d", {row_of(64, 10)}));
  const auto store = make_in_process_store();
  std::vector<std::thread> ranks;
  for (int r = 0; r < 3; ++r) {
    ranks.emplace_back([&, r] {
      Config config;
      config.tune_folder = r == 0 ? folder_.path().native() : (folder_.path() / "none").native();
      const auto group = Group::create({.rank = r, .size = 3, .name = "g", .store = store, .config = config});
      ASSERT_TRUE(group) << group.error().to_string();
      ASSERT_EQ((*group)->tune_tables().size(), 1U);
      EXPECT_EQ((*group)->tune_tables()[0].rows[0].us.at("serial"), 10);
      if (r == 0) return;
      const std::vector<int> members = {2, 1};
      const auto pair = (*group)->subgroup(members, "pair");
      ASSERT_TRUE(pair) << pair.error().to_string();
      EXPECT_EQ((*pair)->tune_tables().size(), 1U) << "a subgroup has its parent's";
    });
  }
  for (auto& rank : ranks) rank.join();
}

}  // namespace
}  // namespace tandem::testing
