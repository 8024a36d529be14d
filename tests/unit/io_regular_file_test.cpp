#include "io/regular_file.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <string>

#include "support/io_folder.hpp"

namespace tandem::io {
namespace {

TEST(SmallFile, IsReadAsAWholeUpToTheLimit) {
  const tests::Folder folder;
  for (const std::size_t size : {0U, 1U, 4095U, 4096U}) {
    const std::string bytes(size, 'x');
    tests::write_bytes(folder / "f", bytes);
    const auto read = read_small_file(folder / "f", 4096);
    ASSERT_TRUE(read) << read.error().to_string();
    EXPECT_EQ(*read, bytes);
  }
  tests::write_bytes(folder / "f", std::string(4097, 'x'));
  const auto read = read_small_file(folder / "f", 4096);
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().code(), ErrorCode::kParse);
  EXPECT_EQ(read.error().text(), "4097 bytes, need at most 4096");
}

// Files of /proc have more bytes than they say, as one that grows while it is read.
TEST(SmallFile, MayHaveMoreBytesThanItSays) {
  const auto whole = read_small_file("/proc/self/status", 1 << 20);
  ASSERT_TRUE(whole) << whole.error().to_string();
  EXPECT_EQ(whole->substr(0, 5), "Name:");
  EXPECT_EQ(whole->back(), '\n');
  EXPECT_GT(whole->size(), 100U);
  const auto limited = read_small_file("/proc/self/status", 100);
  ASSERT_FALSE(limited);
  EXPECT_EQ(limited.error().text(), "101 bytes, need at most 100");
}

TEST(SmallFile, ThatCannotBeReadIsAnErrorWithItsNumber) {
  const tests::Folder folder;
  EXPECT_EQ(read_small_file(folder / "none", 1).error().native_code(), ENOENT);
  // Nothing is mapped at address 0: reading there fails as on a broken disk.
  const auto broken = read_small_file("/proc/self/mem", 1 << 20);
  ASSERT_FALSE(broken);
  EXPECT_EQ(broken.error().code(), ErrorCode::kDriver);
  EXPECT_EQ(broken.error().native_code(), EIO);
  EXPECT_EQ(read_small_file(folder.path(), 1).error().code(), ErrorCode::kInvalidArgument);
}

TEST(SmallFile, OfAnotherUserIsNotTrusted) {
  const tests::Folder folder;
  tests::write_bytes(folder / "f", "text");
  std::filesystem::create_symlink("f", folder / "link");
  EXPECT_TRUE(read_small_file(folder / "link", 9));
  const auto by_link = read_small_file(folder / "link", 9, Trust::kOwnOnly);
  ASSERT_FALSE(by_link);
  EXPECT_EQ(by_link.error().to_string(),
            "InvalidArgument: a symbolic link, which is not followed: remove it");
  EXPECT_TRUE(read_small_file(folder / "f", 9, Trust::kOwnOnly));
  EXPECT_TRUE(read_small_file("/proc/version", 1 << 20, Trust::kOwnOnly)) << "of the superuser";
  if (::chown((folder / "f").c_str(), 65534, 65534) != 0)
    GTEST_SKIP() << "only the superuser can give a file to another user";
  EXPECT_TRUE(read_small_file(folder / "f", 9));
  const auto of_another = read_small_file(folder / "f", 9, Trust::kOwnOnly);
  ASSERT_FALSE(of_another);
  EXPECT_EQ(of_another.error().to_string(), "InvalidArgument: it belongs to user 65534, and this is user " +
                                                std::to_string(::geteuid()) +
                                                ": remove it, or name another folder");
}

}  // namespace
}  // namespace tandem::io
