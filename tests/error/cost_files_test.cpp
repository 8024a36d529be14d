// Files that hold no table, or not one for this device or version: they are passed over, with a line that
// says why.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <string>
#include <tandem/base/unique_fd.hpp>
#include <tandem/bootstrap/group.hpp>
#include <tandem/cost/folder.hpp>
#include <thread>
#include <vector>

#include "support/io_folder.hpp"

namespace tandem::testing {
namespace {

namespace fs = std::filesystem;

cost::Row row_of(std::int64_t m, double serial_us) {
  cost::Row row;
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

class CostFiles : public ::testing::Test {
 protected:
  [[nodiscard]] std::vector<cost::Row> rows_of(const std::string& device = "d") const {
    return cost::read_table(folder_.path(), device).table.rows;
  }
  /// The warning about a file with this text.
  std::string warning_for(const std::string& text, const std::string& device = "d") {
    const fs::path path = folder_.path() / cost::file_name_of(device);
    tests::write_bytes(path, text);
    const cost::Found found = cost::read_table(folder_.path(), device);
    EXPECT_TRUE(found.table.rows.empty()) << text.substr(0, 1000);
    EXPECT_EQ(found.table.device, device);
    fs::remove(path);
    EXPECT_NE(found.warning.find(path.native()), std::string::npos) << found.warning;
    return found.warning;
  }
  /// The error of rows that are not taken in; nothing may have been written.
  std::string refusal_of(const std::vector<cost::Row>& rows, const std::string& device = "d") {
    const auto before = files();
    const auto written = cost::add_rows(folder_.path(), device, rows);
    EXPECT_EQ(files(), before);
    if (written) return "taken";
    EXPECT_EQ(written.error().code(), ErrorCode::kInvalidArgument);
    return written.error().text();
  }
  /// Without those that writers lock.
  [[nodiscard]] std::vector<std::string> files() const {
    std::vector<std::string> names = folder_.names();
    std::erase_if(names, [](const std::string& name) { return name.starts_with(".lock-"); });
    return names;
  }
  tests::Folder folder_;
};

TEST_F(CostFiles, AreWrittenAndRead) {
  const fs::path folder = folder_.path() / "a" / "b";
  const std::string device = "CPU @ 2.8GHz, 2 cores";
  const auto written = cost::add_rows(folder, device, {row_of(64, 10)});
  ASSERT_TRUE(written) << written.error().to_string();
  EXPECT_EQ(written->file.filename(), "cpu_2_8ghz_2_cores.json");
  EXPECT_EQ(written->warning, "");
  ASSERT_TRUE(cost::add_rows(folder, device, {row_of(64, 20), row_of(128, 30)}));
  ASSERT_TRUE(cost::add_rows(folder, "another", {row_of(64, 1)}));
  const cost::Found found = cost::read_table(folder, device);
  EXPECT_EQ(found.warning, "");
  EXPECT_EQ(found.table.device, device);
  ASSERT_EQ(found.table.rows.size(), 2U);
  EXPECT_EQ(found.table.rows[0].us.at("serial"), 20);
}

TEST_F(CostFiles, NoFolderIsNoTable) {
  for (const fs::path& folder : {fs::path(), folder_.path() / "none", folder_.path()}) {
    const cost::Found found = cost::read_table(folder, "d");
    EXPECT_TRUE(found.table.rows.empty());
    EXPECT_EQ(found.warning, "") << folder;
  }
  for (const auto& error : {cost::add_rows("", "d", {}).error(), cost::check_folder("").error()})
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
}

TEST_F(CostFiles, ThatCannotBeUsedAreNamed) {
  const std::string good = cost::to_json(cost::Table{.device = "d", .rows = {row_of(64, 10)}});
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
  EXPECT_NE(warning_for(changed("\"world\":2", "\"world\":0")).find("a row for"), std::string::npos);
  EXPECT_NE(warning_for(changed("\"m\":64", "\"m\":\"x\"")).find("not used"), std::string::npos);
  EXPECT_NE(warning_for(good, "copied").find("it is of the device 'd'"), std::string::npos);
  const std::size_t end_of_number = good.find("10.0") + std::string("1e999").size() - 1;
  const std::string no_number = warning_for(changed("10.0", "1e999"));
  EXPECT_NE(no_number.find("byte " + std::to_string(end_of_number)), std::string::npos) << no_number;
  EXPECT_NE(warning_for(good + "x").find("byte " + std::to_string(good.size()) + ": no JSON, found 'x'"),
            std::string::npos);
  EXPECT_NE(warning_for(changed("\"op\"", "\"po\"")).find("row 0: key 'op' not found"), std::string::npos);
  // A file's own words neither end the line nor fill the screen.
  const std::string words = "\\n\\u001b[31m" + std::string(100'000, 'x');
  for (const std::string where : {"f32", "serial", "rows"}) {
    const std::string warning = warning_for(changed("\"" + where + "\"", "\"" + words + "\""));
    EXPECT_LT(warning.size(), 1000U) << where;
    EXPECT_EQ(warning.find_first_of("\n\x1b"), std::string::npos) << where;
  }
  EXPECT_NE(warning_for(good, "D").find("it is of the device 'd'"), std::string::npos);
}

TEST_F(CostFiles, OfNumbersThatAreNoneAreNamed) {
  const std::string good = cost::to_json(cost::Table{.device = "d", .rows = {row_of(64, 10)}});
  const auto refused = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    return warning_for(text.replace(text.find(from), from.size(), to));
  };
  const auto whole = [&](const std::string& from, const std::string& name, const std::string& value) {
    const std::string warning = refused(from, "\"" + name + "\":" + value);
    EXPECT_NE(warning.find(name + " is " + value + ", need a whole number"), std::string::npos) << warning;
  };
  for (const char* value :
       {"64.5", "64.0", "-1", "1099511627777", "18446744073709551615", "1e+300", "true", "null"})
    whole("\"m\":64", "m", value);
  for (const char* value : {"2.5", "4294967298", "-2"}) whole("\"world\":2", "world", value);
  EXPECT_NE(refused("\"format\": 1", "\"format\": 1.5").find("format is 1.5"), std::string::npos);
  EXPECT_NE(refused(":10.0", ":true").find("true us of serial"), std::string::npos);
  // As deep as a file is long: nobody walks down there for a text.
  const std::string deep = std::string(100'000, '[') + std::string(100'000, ']');
  EXPECT_NE(refused("\"m\":64", std::string("\"m\":") + deep).find("m is an object or a list, need"),
            std::string::npos);
  EXPECT_NE(refused(":10.0", std::string(":") + deep).find("an object or a list us of serial"),
            std::string::npos);
  for (const char* us : {"0", "1e-4", "1e13", "1e308"})
    EXPECT_NE(refused(":10.0", std::string(":") + us).find("us of serial for"), std::string::npos) << us;
}

TEST_F(CostFiles, ThatCannotBeReadAreNamed) {
  const fs::path path = folder_.path() / "d.json";
  const auto warning = [&] { return cost::read_table(folder_.path(), "d").warning; };
  fs::create_symlink(folder_.path() / "another", path);
  EXPECT_NE(warning().find("a symbolic link, which is not followed"), std::string::npos) << warning();
  const auto written = cost::add_rows(folder_.path(), "d", {row_of(64, 10)});
  ASSERT_FALSE(written) << "through a link";
  EXPECT_EQ(written.error().code(), ErrorCode::kInvalidArgument);
  EXPECT_FALSE(fs::exists(folder_.path() / "another"));
  fs::remove(path);
  fs::create_directory(path);
  EXPECT_NE(warning().find("not a regular file"), std::string::npos) << warning();
  fs::remove(path);
  // Nobody writes to this pipe: an open that waits for a writer would hang here.
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  EXPECT_NE(warning().find("not a regular file"), std::string::npos) << warning();
  tests::write_bytes(folder_.path() / "file", "");
  EXPECT_NE(cost::read_table(folder_.path() / "file", "d").warning.find("Not a directory"),
            std::string::npos);
}

TEST_F(CostFiles, ThatAreTooLargeAreNeitherReadNorWritten) {
  constexpr std::size_t kMostBytes = 512 << 10;
  EXPECT_NE(warning_for(std::string(kMostBytes + 1, ' ')).find("524289 bytes, need at most 524288"),
            std::string::npos);
  EXPECT_NE(warning_for(std::string(kMostBytes, ' ')).find("no JSON"), std::string::npos) << "it was parsed";
  std::vector<cost::Row> rows;
  for (int n = 1; n < 4000; ++n) {
    rows.push_back(row_of(64, 10));
    rows.back().key.n = n;
  }
  const std::string text = refusal_of(rows);
  EXPECT_NE(text.find("3999 rows are"), std::string::npos) << text;
  EXPECT_NE(text.find("need at most 524288"), std::string::npos) << text;
  ASSERT_TRUE(cost::add_rows(folder_.path(), "d", {row_of(64, 10)}));
  EXPECT_NE(refusal_of(rows).find("need at most"), std::string::npos);
  EXPECT_EQ(rows_of().size(), 1U) << "what was there stays";
}

TEST_F(CostFiles, TakeNoRowThatTheirReaderWouldRefuse) {
  const auto refused = [&](auto change) {
    cost::Row row = row_of(64, 10);
    change(row);
    return refusal_of({row_of(32, 10), row});
  };
  EXPECT_NE(refused([](cost::Row& row) { row.key.m = -1; }).find("a row for"), std::string::npos);
  EXPECT_NE(refused([](cost::Row& row) { row.key.k = (std::int64_t{1} << 40) + 1; }).find("a row for"),
            std::string::npos);
  EXPECT_NE(refused([](cost::Row& row) { row.key.world = 0; }).find("a row for"), std::string::npos);
  EXPECT_NE(refused([](cost::Row& row) { row.us.erase("serial"); }).find("no time of serial"),
            std::string::npos);
  EXPECT_NE(refused([](cost::Row& row) { row.us["serial"] = std::nan(""); }).find("nan us of serial"),
            std::string::npos);
  EXPECT_NE(refused([](cost::Row& row) { row.us["serial"] = 1e13; }).find("us of serial"), std::string::npos);
  EXPECT_NE(refused([](cost::Row& row) { row.us["\xff"] = 1; }).find("no UTF-8"), std::string::npos);
  EXPECT_NE(refused([](cost::Row& row) { row.key.link = "\xff"; }).find("no UTF-8"), std::string::npos);
  EXPECT_NE(refusal_of({row_of(64, 10)}, "\xff").find("no UTF-8"), std::string::npos);
}

TEST_F(CostFiles, KeepCommandsOfAnyBytes) {
  cost::Row row = row_of(64, 10);
  row.command = "tandem tune --folder \xff";
  ASSERT_TRUE(cost::add_rows(folder_.path(), "d", {row}));
  EXPECT_EQ(rows_of().at(0).command, "tandem tune --folder \xef\xbf\xbd");
}

TEST_F(CostFiles, OfAnotherDeviceOfTheSameNameStay) {
  ASSERT_TRUE(cost::add_rows(folder_.path(), "CPU, 2 cores", {row_of(64, 10)}));
  EXPECT_NE(refusal_of({row_of(64, 20)}, "cpu 2 cores").find("it is of the device 'CPU, 2 cores'"),
            std::string::npos);
  EXPECT_EQ(rows_of("CPU, 2 cores").at(0).us.at("serial"), 10);
}

TEST_F(CostFiles, NeedAFolderThatCanBeWritten) {
  const fs::path folder = folder_.path() / "a" / "b";
  ASSERT_TRUE(cost::check_folder(folder));
  EXPECT_FALSE(fs::exists(folder_.path() / "a")) << "a program that measured nothing leaves nothing";
  ASSERT_TRUE(cost::add_rows(folder, "d", {row_of(64, 10)}));
  ASSERT_TRUE(cost::check_folder(folder)) << "of a folder in use";
  tests::write_bytes(folder_.path() / "file", "");
  for (const fs::path& blocked : {folder_.path() / "file" / "tables", fs::path("/proc/tables")}) {
    const auto prepared = cost::check_folder(blocked);
    ASSERT_FALSE(prepared) << blocked;
    EXPECT_EQ(prepared.error().code(), ErrorCode::kDriver);
    EXPECT_NE(prepared.error().text().find(blocked.native()), std::string::npos) << prepared.error().text();
  }
}

TEST_F(CostFiles, ThatAreLinksAreNeitherReadNorReplaced) {
  ASSERT_TRUE(cost::add_rows(folder_.path(), "e", {row_of(64, 10)}));
  fs::rename(folder_.path() / "e.json", folder_.path() / "elsewhere");
  for (const char* target : {"elsewhere", "precious", "nothing"}) {
    tests::write_bytes(folder_.path() / "precious", "precious");
    fs::create_symlink(target, folder_.path() / "e.json");
    if (std::string_view(target) != "nothing") {
      const cost::Found found = cost::read_table(folder_.path(), "e");
      EXPECT_TRUE(found.table.rows.empty());
      EXPECT_NE(found.warning.find("is not used: a symbolic link"), std::string::npos) << found.warning;
    }
    EXPECT_NE(refusal_of({row_of(64, 20)}, "e").find("a symbolic link, which is not followed"),
              std::string::npos);
    EXPECT_EQ(tests::read_bytes(folder_.path() / "precious"), "precious");
    EXPECT_FALSE(fs::exists(folder_.path() / "nothing"));
    fs::remove(folder_.path() / "e.json");
  }
}

TEST_F(CostFiles, OfOtherUsersAreNeitherReadNorReplaced) {
  ASSERT_TRUE(cost::add_rows(folder_.path(), "e", {row_of(64, 10)}));
  const fs::path path = folder_.path() / "e.json";
  const std::string bytes = tests::read_bytes(path);
  if (::chown(path.c_str(), 65534, 65534) != 0)
    GTEST_SKIP() << "only the superuser can give a file to another user";
  const cost::Found found = cost::read_table(folder_.path(), "e");
  EXPECT_TRUE(found.table.rows.empty());
  EXPECT_NE(found.warning.find("is not used: it belongs to user 65534"), std::string::npos) << found.warning;
  EXPECT_NE(refusal_of({row_of(64, 20)}, "e").find("it belongs to user 65534"), std::string::npos);
  EXPECT_EQ(tests::read_bytes(path), bytes);
}

TEST_F(CostFiles, AreLockedByAFileOfTheUsersOwn) {
  const fs::path lock = folder_.path() / (".lock-" + std::to_string(static_cast<unsigned>(::geteuid())));
  ASSERT_TRUE(cost::add_rows(folder_.path(), "e", {row_of(64, 10)}));
  EXPECT_EQ(fs::status(lock).permissions(), fs::perms::owner_read | fs::perms::owner_write);
  // Whoever may read the folder may lock it: that keeps nobody from adding rows.
  const UniqueFd folder(::open(folder_.path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  ASSERT_EQ(::flock(folder.get(), LOCK_EX), 0);
  EXPECT_TRUE(cost::add_rows(folder_.path(), "e", {row_of(64, 20)}));
  fs::remove(lock);
  fs::create_symlink("elsewhere", lock);
  const auto by_link = cost::add_rows(folder_.path(), "e", {row_of(64, 30)});
  ASSERT_FALSE(by_link);
  EXPECT_EQ(by_link.error().text().find(lock.native() + ": "), 0U) << by_link.error().text();
  EXPECT_FALSE(fs::exists(folder_.path() / "elsewhere"));
  fs::remove(lock);
  ASSERT_EQ(::mkfifo(lock.c_str(), 0600), 0);
  EXPECT_NE(refusal_of({row_of(64, 30)}, "e").find(": not a file of user "), std::string::npos);
}

TEST_F(CostFiles, ABadFileIsReplacedAndSaidSo) {
  tests::write_bytes(folder_.path() / "d.json", "not a table");
  const auto written = cost::add_rows(folder_.path(), "d", {row_of(64, 10)});
  ASSERT_TRUE(written);
  EXPECT_NE(written->warning.find("no JSON"), std::string::npos) << written->warning;
  EXPECT_EQ(rows_of().size(), 1U);
}

TEST_F(CostFiles, WritersAtOnceLoseNoRow) {
  std::vector<std::thread> writers;
  for (int w = 0; w < 4; ++w) {
    writers.emplace_back([&, w] {
      for (int i = 0; i < 5; ++i)
        EXPECT_TRUE(cost::add_rows(folder_.path(), "d", {row_of(std::int64_t{1} << (5 * w + i), 10)}));
    });
  }
  for (auto& writer : writers) writer.join();
  EXPECT_EQ(rows_of().size(), 20U);
  EXPECT_EQ(files(), std::vector<std::string>{"d.json"});
  EXPECT_NE(tests::read_bytes(folder_.path() / "d.json").find("\"device\": \"d\""), std::string::npos);
}

// Ranks that see different folders, as on several hosts, or call their devices differently, choose by rank
// 0's.
TEST_F(CostFiles, OfRankZeroCountForAGroup) {
  cost::Row row = row_of(64, 10);
  row.command = "tandem tune";
  ASSERT_TRUE(cost::add_rows(folder_.path(), "device 0", {row}));
  const auto store = make_in_process_store();
  std::vector<std::thread> ranks;
  for (int r = 0; r < 3; ++r) {
    ranks.emplace_back([&, r] {
      Config config;
      config.tune_folder = r == 0 ? folder_.path().native() : (folder_.path() / "none").native();
      const auto group = Group::create({.rank = r,
                                        .size = 3,
                                        .name = "g",
                                        .store = store,
                                        .config = config,
                                        .device = "device " + std::to_string(r)});
      ASSERT_TRUE(group) << group.error().to_string();
      const cost::Table& table = (*group)->tune_table();
      EXPECT_EQ(table.device, "device 0");
      ASSERT_EQ(table.rows.size(), 1U);
      EXPECT_EQ(table.rows[0].us.at("serial"), 10);
      EXPECT_EQ(table.rows[0].command, "") << "it need not travel";
      if (r == 0) return;
      const std::vector<int> members = {2, 1};
      const auto pair = (*group)->subgroup(members, "pair");
      ASSERT_TRUE(pair) << pair.error().to_string();
      EXPECT_EQ((*pair)->tune_table().rows.size(), 1U) << "a subgroup has its parent's";
    });
  }
  for (auto& rank : ranks) rank.join();
}

TEST_F(CostFiles, OfNoDeviceAreNotLookedAt) {
  ASSERT_TRUE(cost::add_rows(folder_.path(), "", {row_of(64, 10)}));
  Config config;
  config.tune_folder = folder_.path().native();
  const auto group = Group::create({.name = "g", .store = make_in_process_store(), .config = config});
  ASSERT_TRUE(group) << group.error().to_string();
  EXPECT_TRUE((*group)->tune_table().rows.empty());
}

}  // namespace
}  // namespace tandem::testing
