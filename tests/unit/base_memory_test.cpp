// What memory there is, as files of the system say it, and memory whose pages are there or that is refused.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <tandem/base/tensor.hpp>
#include <vector>

#include "base/byte_size.hpp"
#include "base/memory_limit.hpp"
#include "base/memory_pages.hpp"
#include "support/edge_sizes.hpp"
#include "support/no_fallocate.hpp"

namespace tandem {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kMiB = std::int64_t{1} << 20;

/// /proc and /sys of a machine that does not exist: 8 GiB are free.
class FakeSystem : public ::testing::Test {
 protected:
  FakeSystem() {
    char name[] = "/tmp/tandem-memory-XXXXXX";
    root_ = ::mkdtemp(name);
    write("proc/meminfo", "MemTotal: 16777216 kB\nMemAvailable:    8388608 kB\nSwapFree: 0 kB\n");
  }
  ~FakeSystem() override { fs::remove_all(root_); }

  void write(const std::string& path, const std::string& text) const {
    fs::create_directories(fs::path(root_ + "/" + path).parent_path());
    std::ofstream(root_ + "/" + path) << text;
  }
  void mount(const std::string& lines) const { write("proc/self/mountinfo", lines); }
  void group(const std::string& lines) const { write("proc/self/cgroup", lines); }
  void v1(const std::string& folder, const std::string& most, std::int64_t used, std::int64_t inactive = 0,
          std::int64_t active = 0) const {
    write(folder + "/memory.limit_in_bytes", most + "\n");
    write(folder + "/memory.usage_in_bytes", std::to_string(used) + "\n");
    // Without "total_" it is of the group alone.
    write(folder + "/memory.stat", "inactive_file 7\nactive_file 7\ntotal_inactive_file " +
                                       std::to_string(inactive) + "\ntotal_active_file " +
                                       std::to_string(active) + "\n");
  }
  void v2(const std::string& folder, const std::string& most, std::int64_t used,
          std::int64_t inactive = 0) const {
    write(folder + "/memory.max", most + "\n");
    write(folder + "/memory.current", std::to_string(used) + "\n");
    write(folder + "/memory.stat", "anon 5\ninactive_file " + std::to_string(inactive) + "\n");
  }
  [[nodiscard]] std::int64_t available() const { return memory_limit(root_).available_bytes; }
  [[nodiscard]] std::string source() const { return memory_limit(root_).source; }

  static constexpr const char* kV2Mount = "29 1 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
  static constexpr const char* kV1Mounts =
      "32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu\n"
      "35 31 0:32 / /sys/fs/cgroup/memory rw shared:1 - cgroup cgroup rw,memory\n"
      "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
  std::string root_;
};

TEST_F(FakeSystem, WithoutGroupsTheMachineIsTheLimit) {
  EXPECT_EQ(available(), 8 * 1024 * kMiB);
  EXPECT_EQ(source(), "/proc/meminfo MemAvailable + SwapFree");
  write("proc/meminfo", "MemAvailable: 10 kB\nSwapFree: 5 kB\n");
  EXPECT_EQ(available(), 15 * 1024);
  write("proc/meminfo", "");
  EXPECT_EQ(available(), kMostBytes) << "nothing is known";
}

TEST_F(FakeSystem, TheSmallestOfAllGroupsAboveIsTheLimit) {
  for (const bool is_v2 : {false, true}) {
    mount(is_v2 ? kV2Mount : kV1Mounts);
    group(is_v2 ? "0::/a/b\n" : "9:cpu,cpuacct:/\n4:hugetlb,memory:/a/b\n0::/\n");
    const std::string top = is_v2 ? "sys/fs/cgroup" : "sys/fs/cgroup/memory";
    const std::string none = is_v2 ? "max" : "9223372036854771712";
    const auto set = [&](const std::string& folder, const std::string& most, std::int64_t used) {
      is_v2 ? v2(top + folder, most, used) : v1(top + folder, most, used);
    };
    set("/a/b", none, kMiB);
    set("/a", none, 2 * kMiB);
    set("", none, 3 * kMiB);
    EXPECT_EQ(available(), 8 * 1024 * kMiB) << is_v2;
    const std::vector<std::string> folders{"/a/b", "/a", ""};
    for (const std::string& tight : folders) {
      for (const std::string& folder : folders)
        set(folder, folder == tight ? std::to_string(64 * kMiB) : none, 4 * kMiB);
      EXPECT_EQ(available(), 60 * kMiB) << is_v2 << tight;
      EXPECT_EQ(source(), "/" + top + tight + (is_v2 ? "/memory.max" : "/memory.limit_in_bytes"));
    }
    set("/a/b", std::to_string(kMiB), 2 * kMiB);
    EXPECT_EQ(available(), 0) << "more is used than the limit";
    fs::remove_all(root_ + "/sys");
  }
}

TEST_F(FakeSystem, TheCacheOfFilesIsGivenUpForMemory) {
  mount(kV1Mounts);
  group("4:memory:/a\n");
  v1("sys/fs/cgroup/memory/a", std::to_string(100 * kMiB), 90 * kMiB, 20 * kMiB, 30 * kMiB);
  EXPECT_EQ(available(), 60 * kMiB);
  mount(kV2Mount);
  group("0::/a\n");
  v2("sys/fs/cgroup/a", std::to_string(100 * kMiB), 90 * kMiB, 20 * kMiB);
  EXPECT_EQ(available(), 30 * kMiB);
}

// A container sees its own group where the hierarchy is mounted, and the host's path or "/" in its list.
TEST_F(FakeSystem, ContainersAreFoundByTheirMounts) {
  mount("35 31 0:32 /docker/abc /mnt/mem rw - cgroup cgroup rw,memory\n");
  v1("mnt/mem", std::to_string(50 * kMiB), 10 * kMiB);
  v1("mnt/mem/x", std::to_string(30 * kMiB), 10 * kMiB);
  group("4:memory:/docker/abc\n");
  EXPECT_EQ(available(), 40 * kMiB);
  group("4:memory:/docker/abc/x\n");
  EXPECT_EQ(available(), 20 * kMiB);
  group("4:memory:/of/the/host\n");
  EXPECT_EQ(available(), 40 * kMiB);
}

TEST(MemoryLimit, ReadsTheAvailableMemory) {
  EXPECT_EQ(parse_available_bytes("MemTotal: 10 kB\nMemAvailable:   123 kB\n"), 123 * 1024);
  EXPECT_EQ(parse_available_bytes("MemTotal: 10 kB\n"), -1);
  EXPECT_EQ(parse_available_bytes("XMemAvailable: 5 kB\n"), -1);
  EXPECT_EQ(parse_available_bytes("MemAvailable: 9223372036854775807 kB\n"), -1) << "overflow";
  const MemoryLimit limit = memory_limit();
  EXPECT_GT(limit.available_bytes, 1 << 20);
  EXPECT_LT(limit.available_bytes, std::int64_t{1} << 50) << limit.source;
}

TEST(MemoryLimit, RefusesWithTheBytesAskedForAndAvailable) {
  EXPECT_TRUE(check_memory("x", 0));
  EXPECT_TRUE(check_memory("x", 1));
  const auto refused = check_memory("the thing", std::int64_t{1} << 50);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), ErrorCode::kOutOfMemory);
  EXPECT_EQ(refused.error().text().find("the thing: 1125899906842624 bytes asked for, "), 0U)
      << refused.error().text();
  EXPECT_NE(refused.error().text().find(" available by "), std::string::npos) << refused.error().text();
}

TEST(ByteSums, StopAtMoreThanAnyMemory) {
  EXPECT_EQ(add_bytes(2, 3), 5);
  EXPECT_EQ(add_bytes(kMax, 1), kMostBytes);
  EXPECT_EQ(add_bytes(kMostBytes, 1), kMostBytes);
  EXPECT_EQ(multiply_bytes(3, 5), 15);
  EXPECT_EQ(multiply_bytes(kMax, 2), kMostBytes);
  EXPECT_EQ(multiply_bytes(std::int64_t{1} << 31, std::int64_t{1} << 31), kMostBytes);
  EXPECT_EQ(multiply_bytes(0, kMax), 0);
}

// ---- pages

TEST(MemoryFile, HasItsPagesAndTakesSeals) {
  for (const std::int64_t num_bytes : {std::int64_t{1}, std::int64_t{5000}, 5 * kMiB + 1}) {
    const auto file = create_memory_file("test", "t", num_bytes);
    ASSERT_TRUE(file) << file.error().to_string();
    struct stat status {};
    ASSERT_EQ(::fstat(file->get(), &status), 0);
    EXPECT_EQ(status.st_size, num_bytes);
    EXPECT_GE(status.st_blocks * 512, num_bytes) << "a lack would show at a store, as SIGBUS";
    EXPECT_EQ(::fcntl(file->get(), F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
    EXPECT_EQ(::fcntl(file->get(), F_ADD_SEALS, F_SEAL_SHRINK), 0);
  }
  const auto empty = create_memory_file("test", "t", 0);
  EXPECT_TRUE(empty);
}

TEST(MemoryFile, LacksAreErrors) {
  const auto refused = create_memory_file("test", "t", std::int64_t{1} << 50);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().text().find("t: 1125899906842624 bytes asked for"), std::string::npos);
  const int code = testing::exit_code_in_child([] {
    if (!testing::refuse_fallocate()) return 10;
    const auto none = create_memory_file("test", "t", 5000);
    if (none) return 11;
    if (none.error().code() != ErrorCode::kOutOfMemory || none.error().native_code() != ENOSPC) return 12;
    return none.error().text() == "t: 5000 bytes asked for: posix_fallocate: No space left on device" ? 0
                                                                                                      : 13;
  });
  EXPECT_EQ(code, 0);
}

// SIGXFSZ would end the child.
TEST(MemoryFile, TheFileSizeLimitIsAnError) {
  const int code = testing::exit_code_in_child([] {
    const rlimit limit{65536, 65536};
    if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) return 10;
    if (!create_memory_file("test", "t", 65536)) return 11;
    const auto none = create_memory_file("test", "t", 65537);
    if (none) return 12;
    return none.error().text() ==
                   "t: 65537 bytes asked for, 65536 available by the file size limit (ulimit -f); use "
                   "smaller tensors or raise this limit"
               ? 0
               : 13;
  });
  EXPECT_EQ(code, 0);
}

TEST(Pages, AreThereAfterTheyWereAskedFor) {
  constexpr std::int64_t kBytes = 4 * kMiB;
  const auto made = allocate_pages("t", kBytes);
  ASSERT_TRUE(made) << made.error().to_string();
  const std::unique_ptr<void, decltype(&std::free)> data(*made, &std::free);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(data.get()) % 64, 0U);
  const std::uintptr_t first = (reinterpret_cast<std::uintptr_t>(data.get()) + 4095) / 4096 * 4096;
  std::vector<unsigned char> is_there(kBytes / 4096 - 1);
  ASSERT_EQ(::mincore(reinterpret_cast<void*>(first), is_there.size() * 4096, is_there.data()), 0);
  for (const unsigned char there : is_there) ASSERT_EQ(there & 1, 1);
}

TEST(Pages, RefuseWhatThereIsNot) {
  for (const std::int64_t num_bytes : {std::int64_t{1} << 46, std::int64_t{1} << 62, kMax}) {
    const auto none = allocate_pages("t", num_bytes);
    ASSERT_FALSE(none);
    EXPECT_EQ(none.error().code(), ErrorCode::kOutOfMemory);
    EXPECT_NE(none.error().text().find(std::to_string(num_bytes) + " bytes asked for"), std::string::npos);
  }
}

// The addresses are there, the memory is not. In a child: without the check it takes all that there is.
TEST(Pages, AreNotTouchedBeyondWhatThereIs) {
  const int code = testing::exit_code_in_child([] {
    constexpr std::size_t kHuge = std::size_t{1} << 40;
    void* const data = ::mmap(nullptr, kHuge, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (data == MAP_FAILED) return 10;  // a touch of these pages ends the child
    const auto none = commit_pages("t", data, static_cast<std::int64_t>(kHuge));
    return !none && none.error().code() == ErrorCode::kOutOfMemory ? 0 : 11;
  });
  EXPECT_EQ(code, 0);
}

/// A control group (v1) of 256 MiB, where one can be made.
class MemoryGroup {
 public:
  MemoryGroup() : folder_("/sys/fs/cgroup/memory/tandem_unit_" + std::to_string(::getpid())) {
    is_there_ = ::mkdir(folder_.c_str(), 0755) == 0;
    if (is_there_) std::ofstream(folder_ + "/memory.limit_in_bytes") << 256 * kMiB;
  }
  ~MemoryGroup() {
    if (is_there_) ::rmdir(folder_.c_str());
  }
  [[nodiscard]] bool is_there() const { return is_there_; }
  void enter() const { std::ofstream(folder_ + "/cgroup.procs") << 0; }

 private:
  std::string folder_;
  bool is_there_ = false;
};

// Each of four would fit alone. None gives its memory back before all have tried.
TEST(Pages, ThoseWhoTakeThemTogetherAreRefusedAndNotKilled) {
  const MemoryGroup group;
  if (!group.is_there()) GTEST_SKIP() << "no memory group can be made here";
  for (const bool is_file : {false, true}) {
    int answers[2];
    int end[2];
    ASSERT_EQ(::pipe(answers), 0);
    ASSERT_EQ(::pipe(end), 0);
    constexpr int kNum = 4;
    pid_t children[kNum];
    for (pid_t& child : children) {
      child = ::fork();
      if (child != 0) continue;
      ::close(end[1]);
      group.enter();
      char answer = 'r';
      const Result<UniqueFd> file =
          is_file ? create_memory_file("t", "t", 150 * kMiB) : Result<UniqueFd>(UniqueFd());
      const Result<void*> pages = is_file ? Result<void*>(nullptr) : allocate_pages("t", 150 * kMiB);
      if (file && pages) answer = 'y';
      const bool has_answered = ::write(answers[1], &answer, 1) == 1;
      ::close(answers[1]);  // when all have, or are killed, the parent reads on
      const auto ended = ::read(end[0], &answer, 1);
      ::_exit(has_answered && ended == 0 ? 0 : 1);
    }
    ::close(answers[1]);
    ::close(end[0]);
    std::string all;
    char answer = 0;
    while (static_cast<int>(all.size()) < kNum && ::read(answers[0], &answer, 1) == 1) all += answer;
    ::close(end[1]);
    ::close(answers[0]);
    for (const pid_t child : children) {
      int status = -1;
      EXPECT_EQ(::waitpid(child, &status, 0), child);
      EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "killed: " << status << " " << all;
    }
    EXPECT_EQ(all.size(), static_cast<std::size_t>(kNum)) << all;
    EXPECT_LE(std::count(all.begin(), all.end(), 'y'), 1) << all;
  }
}

// ---- tensors and views of any sizes

using testing::edge_sizes;

TEST(TensorHost, HoldsItsSizesOrThrowsWithThem) {
  for (const Dims& sizes : edge_sizes()) {
    for (const DType dtype : {DType::kU8, DType::kF32, DType::kF64}) {
      const std::string what = to_string(sizes);
      const auto num_bytes = byte_size(sizes, dtype, "t");
      if (num_bytes && testing::may_be_had(*num_bytes)) continue;
      try {
        const Tensor tensor = Tensor::host(sizes, dtype);
        ASSERT_TRUE(num_bytes) << what;
        EXPECT_EQ(tensor.view().size_bytes(), *num_bytes) << what;
        EXPECT_TRUE(tensor.view().is_contiguous()) << what;
      } catch (const std::length_error& wrong) {
        EXPECT_FALSE(num_bytes) << what;
        EXPECT_NE(std::string(wrong.what()).find(what), std::string::npos) << wrong.what();
      } catch (const std::bad_alloc& lack) {
        ASSERT_TRUE(num_bytes) << what;
        EXPECT_NE(std::string(lack.what()).find(std::to_string(*num_bytes) + " bytes asked for"),
                  std::string::npos)
            << lack.what();
      }
    }
  }
}

TEST(Numel, NeverWraps) {
  for (const Dims& sizes : edge_sizes()) {
    const std::int64_t count = numel(sizes);
    const auto num_bytes = byte_size(sizes, DType::kU8, "t");
    if (num_bytes && *num_bytes < std::int64_t{1} << 60) {
      EXPECT_EQ(count, *num_bytes) << to_string(sizes);
    }
    bool is_empty = false;
    for (const std::int64_t size : sizes) is_empty = is_empty || size == 0;
    EXPECT_EQ(count == 0, is_empty) << to_string(sizes);
    EXPECT_EQ(contiguous_strides(sizes).size(), sizes.size());
  }
}

}  // namespace
}  // namespace tandem
