#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <string>
#include <string_view>
#include <tandem/io/npy.hpp>
#include <tandem/io/safetensors.hpp>

#include "support/io_folder.hpp"

namespace tandem::io {
namespace {

using tests::Folder;

void expect_cannot_read(const std::string& path, const std::string& code, const std::string& what) {
  const auto npy = read_npy(path);
  ASSERT_FALSE(npy.has_value()) << path;
  EXPECT_EQ(npy.error().to_string(), code + ": read_npy '" + path + "': " + what);
  const auto all = read_safetensors(path);
  ASSERT_FALSE(all.has_value()) << path;
  EXPECT_EQ(all.error().to_string(), code + ": read_safetensors '" + path + "': " + what);
  const auto one = read_safetensors(path, "x");
  ASSERT_FALSE(one.has_value()) << path;
  EXPECT_EQ(one.error().to_string(), code + ": read_safetensors '" + path + "': " + what);
}

void expect_cannot_write(const std::string& path, const std::string& code, const std::string& what) {
  const Tensor tensor = Tensor::host({2}, DType::kF32);
  const auto npy = write_npy(path, tensor.view());
  ASSERT_FALSE(npy.has_value()) << path;
  EXPECT_EQ(npy.error().to_string(), code + ": write_npy '" + path + "': " + what);
  const auto safetensors = write_safetensors(path, {{"x", tensor.view()}});
  ASSERT_FALSE(safetensors.has_value()) << path;
  EXPECT_EQ(safetensors.error().to_string(), code + ": write_safetensors '" + path + "': " + what);
}

TEST(FileErrors, ReadingWhatIsNotThere) {
  const Folder folder;
  expect_cannot_read(folder / "none.npy", "Driver", "cannot open it: No such file or directory (code 2)");
  tests::write_bytes(folder / "file", "x");
  expect_cannot_read(folder / "file/x", "Driver", "cannot open it: Not a directory (code 20)");
  expect_cannot_read("", "Driver", "cannot open it: No such file or directory (code 2)");
}

TEST(FileErrors, ReadingWhatIsNotAFile) {
  const Folder folder;
  const std::string what = "not a regular file: copy it to one first";
  expect_cannot_read(folder.path(), "InvalidArgument", "a folder, not a regular file: name a file in it");
  expect_cannot_read("/dev/null", "InvalidArgument", what);
  // Nobody writes to this pipe: an open that waits for a writer would hang here.
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  expect_cannot_read(folder / "pipe", "InvalidArgument", what);
}

TEST(FileErrors, WritingWhereNoFileCanBe) {
  const Folder folder;
  const std::string missing = folder / "none";
  expect_cannot_write(missing + "/x.npy", "Driver",
                      "cannot open the directory '" + missing + "': No such file or directory (code 2)");
  tests::write_bytes(folder / "file", "x");
  expect_cannot_write(
      folder / "file/x.npy", "Driver",
      "cannot open the directory '" + std::string(folder / "file") + "': Not a directory (code 20)");
  expect_cannot_write("/proc/x.npy", "Driver",
                      "cannot create a file in its directory: No such file or directory (code 2)");
}

TEST(FileErrors, WritingOverWhatIsNotAFile) {
  const Folder folder;
  std::filesystem::create_directory(folder / "directory");
  expect_cannot_write(folder / "directory", "InvalidArgument",
                      "a directory has this name: need the name of a file");
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  expect_cannot_write(folder / "pipe", "InvalidArgument",
                      "something that is not a regular file has this name: need the name of a file");
  expect_cannot_write("/dev/null", "InvalidArgument",
                      "something that is not a regular file has this name: need the name of a file");
  std::filesystem::create_symlink("nowhere", folder / "link");
  expect_cannot_write(folder / "link", "InvalidArgument",
                      "a symbolic link to nothing: remove it or create what it points to");
  expect_cannot_write(folder.path().native() + "/none/", "InvalidArgument", "need the name of a file");
  EXPECT_EQ(folder.names().size(), 3U) << "nothing else may be left";
}

TEST(FileErrors, WritingOtherMemory) {
  const Folder folder;
  const std::string path = folder / "x.npy";
  TensorView view = TensorView::contiguous(nullptr, {2}, DType::kF16, {DeviceKind::kCuda, 1});
  const auto on_gpu = write_npy(path, view);
  ASSERT_FALSE(on_gpu.has_value());
  EXPECT_EQ(on_gpu.error().to_string(),
            "InvalidArgument: write_npy '" + path +
                "': needs host memory, got f16 [2] strides [1] on cuda:1: copy it first");
  view.device = {};
  const auto null = write_npy(path, view);
  ASSERT_FALSE(null.has_value());
  EXPECT_EQ(null.error().to_string(), "InvalidArgument: write_npy '" + path +
                                          "': the view has no memory: f16 [2] strides [1] on cpu:0");
  EXPECT_TRUE(folder.names().empty());
}

// In a child whose files may not grow past 64 KiB, which fails like a full disk does.
TEST(FileErrors, RunningOutOfSpaceLeavesTheOldFile) {
  const Folder folder;
  const std::string path = folder / "x.npy";
  const Tensor small = Tensor::host({2}, DType::kU8);
  ASSERT_TRUE(write_npy(path, small.view()));
  const std::string old_bytes = tests::read_bytes(path);
  const pid_t child = ::fork();
  if (child == 0) {
    const rlimit limit{65536, 65536};
    if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) ::_exit(10);  // SIGXFSZ would kill
    const Tensor large = Tensor::host({100'000}, DType::kU8);
    const auto written = write_npy(path, large.view());
    if (written.has_value()) ::_exit(11);
    if (written.error().code() != ErrorCode::kDriver || written.error().native_code() != EFBIG) ::_exit(12);
    // 128 bytes of header and 65408 of the data fit; the rest is refused.
    const std::string want = "write_npy '" + path + "': cannot write 34592 bytes: File too large";
    std::fprintf(stderr, "%s\n", written.error().text().c_str());
    ::_exit(written.error().text() == want ? 0 : 13);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "status " << status << ", see the text above";
  EXPECT_EQ(tests::read_bytes(path), old_bytes);
  EXPECT_EQ(folder.names(), std::vector<std::string>{"x.npy"});
}

}  // namespace
}  // namespace tandem::io
