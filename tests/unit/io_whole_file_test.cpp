#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <utility>

#include "io/whole_file.hpp"
#include "support/io_folder.hpp"

namespace {
int flushed_files = 0;
int error_of_flushing = 0;
}  // namespace

/// Stands before the system's: counts, and fails on demand.
extern "C" int fsync(int fd) {
  ++flushed_files;
  if (error_of_flushing == 0) return static_cast<int>(::syscall(SYS_fsync, fd));
  errno = error_of_flushing;
  return -1;
}

namespace tandem::io {
namespace {

using tests::Folder;
using tests::read_bytes;
using Names = std::vector<std::string>;

class WholeFileTest : public testing::TestWithParam<WholeFile::Scratch> {
 protected:
  static WholeFile create(const std::filesystem::path& path) {
    auto file = WholeFile::create(path, {.scratch = GetParam()});
    if (!file) throw std::runtime_error(file.error().to_string());
    return std::move(*file);
  }
  static void put(const std::filesystem::path& path, std::string_view bytes) {
    WholeFile file = create(path);
    ASSERT_TRUE(file.write(bytes.data(), bytes.size()));
    const auto committed = file.commit();
    ASSERT_TRUE(committed.has_value()) << committed.error().to_string();
  }
  static int num_open_files() {
    const std::filesystem::directory_iterator files("/proc/self/fd");
    return static_cast<int>(std::distance(begin(files), end(files)));
  }
};

TEST_P(WholeFileTest, AppearsWithCommit) {
  const Folder folder;
  WholeFile file = create(folder / "x");
  ASSERT_TRUE(file.write("ab", 2));
  ASSERT_TRUE(file.write("", 0));
  ASSERT_TRUE(file.write("cde", 3));
  EXPECT_FALSE(std::filesystem::exists(folder / "x"));
  EXPECT_EQ(folder.names().size(), GetParam() == WholeFile::Scratch::kNameless ? 0U : 1U);
  ASSERT_TRUE(file.commit());
  EXPECT_EQ(folder.names(), Names{"x"});
  EXPECT_EQ(read_bytes(folder / "x"), "abcde");
}

TEST_P(WholeFileTest, ReplacesWhatWasThere) {
  const Folder folder;
  tests::write_bytes(folder / "x", "a long old text");
  const std::filesystem::path other = folder / "y";
  std::filesystem::create_hard_link(folder / "x", other);
  put(folder / "x", "text");
  EXPECT_EQ(read_bytes(folder / "x"), "text");
  EXPECT_EQ(read_bytes(other), "a long old text") << "the old file is not written to";
  EXPECT_EQ(folder.names().size(), 2U);
}

TEST_P(WholeFileTest, LeavesNothingWithoutCommit) {
  const Folder folder;
  tests::write_bytes(folder / "x", "old");
  const int before = num_open_files();
  {
    WholeFile file = create(folder / "x");
    ASSERT_TRUE(file.write("new", 3));
    const WholeFile moved = std::move(file);
  }
  EXPECT_EQ(folder.names(), Names{"x"});
  EXPECT_EQ(read_bytes(folder / "x"), "old");
  EXPECT_EQ(num_open_files(), before);
}

TEST_P(WholeFileTest, FollowsALinkAndKeepsIt) {
  const Folder folder;
  std::filesystem::create_directory(folder / "deep");
  tests::write_bytes(folder / "deep/real", "old");
  std::filesystem::create_symlink("deep/real", folder / "link");
  put(folder / "link", "new");
  EXPECT_TRUE(std::filesystem::is_symlink(folder / "link"));
  EXPECT_EQ(read_bytes(folder / "deep/real"), "new");
  EXPECT_EQ(folder.names().size(), 2U);
}

TEST_P(WholeFileTest, RefusesALinkWhereAsked) {
  const Folder folder;
  tests::write_bytes(folder / "real", "old");
  std::filesystem::create_symlink("real", folder / "link");
  const auto file =
      WholeFile::create(folder / "link", {.scratch = GetParam(), .links = WholeFile::Links::kRefuse});
  ASSERT_FALSE(file.has_value());
  EXPECT_EQ(file.error().to_string(), "InvalidArgument: a symbolic link, which is not followed: remove it");
  EXPECT_EQ(folder.names().size(), 2U);
}

TEST_P(WholeFileTest, IsOnTheDiskBeforeItHasItsName) {
  const Folder folder;
  tests::write_bytes(folder / "x", "old");
  const int before = flushed_files;
  put(folder / "x", "new");
  EXPECT_EQ(flushed_files, before + 1);
  for (const int number : {EIO, ENOSPC, EDQUOT}) {
    WholeFile file = create(folder / "x");
    ASSERT_TRUE(file.write("third", 5));
    error_of_flushing = number;
    const auto committed = file.commit();
    error_of_flushing = 0;
    ASSERT_FALSE(committed.has_value()) << number;
    EXPECT_EQ(committed.error().native_code(), number);
    EXPECT_EQ(committed.error().text().find("cannot bring the file to the disk: "), 0U);
    EXPECT_EQ(read_bytes(folder / "x"), "new");
  }
  EXPECT_EQ(folder.names(), Names{"x"});
  for (const int number : {EINVAL, EOPNOTSUPP, ENOSYS}) {  // of file systems that have nothing to flush
    error_of_flushing = number;
    put(folder / "x", std::to_string(number));
    error_of_flushing = 0;
    EXPECT_EQ(read_bytes(folder / "x"), std::to_string(number));
  }
}

TEST_P(WholeFileTest, ProcessesThatEndAtOnceRemoveTheSibling) {
  const Folder folder;
  WholeFile file = create(folder / "x");
  WholeFile::remove_siblings();
  EXPECT_EQ(folder.names(), Names{});
  { const WholeFile gone = create(folder / "y"); }
  tests::write_bytes(folder / "z", "another's");
  WholeFile::remove_siblings();
  EXPECT_EQ(folder.names(), Names{"z"});
}

TEST_P(WholeFileTest, KeepsThePermissionsOfWhatWasThere) {
  const Folder folder;
  for (const mode_t permissions : {0600U, 0640U, 0444U, 0755U}) {
    tests::write_bytes(folder / "x", "old");
    ASSERT_EQ(::chmod((folder / "x").c_str(), permissions), 0);
    put(folder / "x", "new");
    struct stat status {};
    ASSERT_EQ(::stat((folder / "x").c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 07777U, permissions);
    std::filesystem::remove(folder / "x");
  }
}

TEST_P(WholeFileTest, PermissionsAreThoseOfANewFile) {
  const Folder folder;
  const mode_t old_mask = ::umask(027);
  put(folder / "x", "text");
  ::umask(old_mask);
  struct stat status {};
  ASSERT_EQ(::stat((folder / "x").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777U, 0640U);
}

TEST_P(WholeFileTest, TakesRelativeAndLongNames) {
  const Folder folder;
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(folder.path());
  const std::string longest(255, 'n');
  put("x", "1");
  put(longest, "2");
  put(longest, "3");
  std::filesystem::current_path(before);
  EXPECT_EQ(read_bytes(folder / "x"), "1");
  EXPECT_EQ(read_bytes(folder / longest), "3");
  EXPECT_EQ(folder.names().size(), 2U);
}

TEST_P(WholeFileTest, ANameThatIsTooLongIsKnownAtOnce) {
  const Folder folder;
  const auto file = WholeFile::create(folder / std::string(256, 'n'), {.scratch = GetParam()});
  ASSERT_FALSE(file.has_value());
  EXPECT_EQ(file.error().native_code(), ENAMETOOLONG);
}

TEST_P(WholeFileTest, IsPutInOneStep) {
  const Folder folder;
  ASSERT_TRUE(WholeFile::put(folder / "x", "text", {.scratch = GetParam()}));
  EXPECT_EQ(read_bytes(folder / "x"), "text");
  EXPECT_FALSE(WholeFile::put(folder / "none/x", "text", {.scratch = GetParam()}));
}

TEST_P(WholeFileTest, ANameTakenMeanwhileByADirectoryIsAnError) {
  const Folder folder;
  {
    WholeFile file = create(folder / "x");
    ASSERT_TRUE(file.write("text", 4));
    std::filesystem::create_directory(folder / "x");
    const auto committed = file.commit();
    ASSERT_FALSE(committed.has_value());
    EXPECT_EQ(committed.error().to_string(),
              "Driver: cannot rename the file to its name: Is a directory (code 21)");
  }
  EXPECT_EQ(folder.names(), Names{"x"});
}

INSTANTIATE_TEST_SUITE_P(Scratch, WholeFileTest,
                         testing::Values(WholeFile::Scratch::kNameless, WholeFile::Scratch::kNamed),
                         [](const auto& scratch) {
                           return scratch.param == WholeFile::Scratch::kNameless ? "Nameless" : "Named";
                         });

}  // namespace
}  // namespace tandem::io
