#include "io/folder.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <tandem/base/unique_fd.hpp>

#include "io/file_lock.hpp"
#include "support/io_folder.hpp"

namespace tandem::io {
namespace {

namespace fs = std::filesystem;

TEST(IoFolder, IsCheckedWithoutMakingIt) {
  const tests::Folder folder;
  const fs::path before = fs::current_path();
  fs::current_path(folder.path());
  for (const fs::path& can : {folder.path(), folder / "a", folder / "a/b/c", folder / "a/", fs::path("a"),
                              fs::path("a/b"), fs::path(".")}) {
    const auto checked = check_folder(can);
    EXPECT_TRUE(checked) << can << ": " << checked.error().to_string();
  }
  fs::current_path(before);
  EXPECT_TRUE(folder.names().empty());
  tests::write_bytes(folder / "file", "");
  for (const fs::path& cannot :
       {folder / "file", folder / "file/a", fs::path("/proc/a"), fs::path("/proc")}) {
    const auto checked = check_folder(cannot);
    ASSERT_FALSE(checked) << cannot;
    EXPECT_EQ(checked.error().code(), ErrorCode::kDriver);
    EXPECT_EQ(checked.error().text().find(cannot.native() + ": "), 0U) << checked.error().text();
  }
  EXPECT_EQ(check_folder("").error().code(), ErrorCode::kInvalidArgument);
}

TEST(IoFolder, IsMadeWithThoseAboveIt) {
  const tests::Folder folder;
  ASSERT_TRUE(make_folder(folder / "a/b"));
  ASSERT_TRUE(make_folder(folder / "a/b")) << "also where it is there";
  EXPECT_TRUE(fs::is_directory(folder / "a/b"));
  tests::write_bytes(folder / "file", "");
  EXPECT_EQ(make_folder(folder / "file/a").error().native_code(), ENOTDIR);
  EXPECT_EQ(make_folder("").error().code(), ErrorCode::kInvalidArgument);
}

TEST(IoFileLock, OfAnotherProgramIsAwaitedForALimitedTime) {
  const tests::Folder folder;
  tests::write_bytes(folder / "f", "");
  const auto open = [&] { return UniqueFd(::open((folder / "f").c_str(), O_RDWR | O_CLOEXEC)); };
  const UniqueFd own = open();
  {
    const UniqueFd others = open();
    ASSERT_EQ(::flock(others.get(), LOCK_EX), 0);
    const auto locked = lock_file(own.get(), std::chrono::milliseconds(30));
    ASSERT_FALSE(locked);
    EXPECT_EQ(locked.error().to_string(), "Timeout: another program has had it locked for 30 ms");
  }
  ASSERT_TRUE(lock_file(own.get(), std::chrono::milliseconds(30)));
  const UniqueFd third = open();
  EXPECT_NE(::flock(third.get(), LOCK_EX | LOCK_NB), 0) << "it is not locked";
  EXPECT_EQ(lock_file(-1, std::chrono::milliseconds(30)).error().native_code(), EBADF);
}

}  // namespace
}  // namespace tandem::io
