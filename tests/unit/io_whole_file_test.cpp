#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <string>
#include <utility>

#include "io/whole_file.hpp"
#include "support/io_folder.hpp"

namespace tandem::io {
namespace {

using tests::Folder;
using tests::read_bytes;
using Names = std::vector<std::string>;

class WholeFileTest : public testing::TestWithParam<WholeFile::Scratch> {
 protected:
  static WholeFile create(const std::filesystem::path& path) {
    auto file = WholeFile::create(path, GetParam());
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
