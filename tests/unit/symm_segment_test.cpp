// Segments: what is refused before a byte of a foreign file is mapped, and what the guard pages do.
#include "symm/cpu/segment.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <string>

#include "support/no_fallocate.hpp"

namespace tandem::symm::cpu {
namespace {

constexpr std::int64_t kBytes = 5000;

template <class T>
void expect_refused(const Result<T>& result, ErrorCode code, std::string_view piece) {
  ASSERT_FALSE(result) << "no error, expected '" << piece << "'";
  EXPECT_EQ(to_string(result.error().code()), to_string(code)) << result.error().text();
  EXPECT_NE(result.error().text().find(piece), std::string::npos)
      << "'" << piece << "' is not in: " << result.error().text();
}

UniqueFd duplicate(int fd) {
  return UniqueFd(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
}

TEST(SymmSegment, ImportSharesTheBytes) {
  const auto made = Segment::create(kBytes).value();
  const auto seen = Segment::import(duplicate(made->fd()), made->name()).value();
  ASSERT_NE(seen->data(), made->data());
  auto* bytes = static_cast<unsigned char*>(made->data());
  for (std::int64_t i = 0; i < kBytes; ++i) ASSERT_EQ(bytes[i], 0) << i;
  bytes[kBytes - 1] = 77;
  EXPECT_EQ(static_cast<unsigned char*>(seen->data())[kBytes - 1], 77);
}

TEST(SymmSegment, IsSealedAndCloseOnExec) {
  const auto made = Segment::create(kBytes).value();
  EXPECT_EQ(::fcntl(made->fd(), F_GET_SEALS), F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
  EXPECT_EQ(::fcntl(made->fd(), F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
  EXPECT_NE(::ftruncate(made->fd(), 0), 0) << "a peer could shrink the file under a reader";
}

TEST(SymmSegment, CookiesDiffer) {
  EXPECT_NE(Segment::create(1).value()->name().cookie, Segment::create(1).value()->name().cookie);
}

TEST(SymmSegment, RefusesWhatIsNoSealedMemoryFile) {
  const auto made = Segment::create(kBytes).value();
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const UniqueFd reader(ends[0]);
  const UniqueFd writer(ends[1]);
  expect_refused(Segment::import(reader, made->name()), ErrorCode::kInvalidArgument, "a pipe");
  const UniqueFd folder(::open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  expect_refused(Segment::import(folder, made->name()), ErrorCode::kInvalidArgument, "a directory");
  const UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  expect_refused(Segment::import(socket, made->name()), ErrorCode::kInvalidArgument, "a socket");
  const UniqueFd device(::open("/dev/null", O_RDWR | O_CLOEXEC));
  expect_refused(Segment::import(device, made->name()), ErrorCode::kInvalidArgument, "a device");

  const UniqueFd small(::memfd_create("small", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(small.get(), 4096), 0);
  expect_refused(Segment::import(small, made->name()), ErrorCode::kInvalidArgument,
                 "the file has 4096 bytes, need 12288");
  const UniqueFd unsealed(::memfd_create("unsealed", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(unsealed.get(), 12288), 0);
  expect_refused(Segment::import(unsealed, made->name()), ErrorCode::kInvalidArgument,
                 "seals are 0x0, need 0x6");
  ASSERT_EQ(::fcntl(unsealed.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
  expect_refused(Segment::import(unsealed, made->name()), ErrorCode::kInvalidArgument, "other memory");
}

TEST(SymmSegment, RefusesOtherMemoryOfTheSameSize) {
  const auto made = Segment::create(kBytes).value();
  const auto other = Segment::create(kBytes).value();
  expect_refused(Segment::import(duplicate(other->fd()), made->name()), ErrorCode::kInvalidArgument,
                 "cookie");
  expect_refused(Segment::import(UniqueFd(), made->name()), ErrorCode::kDriver, "fstat");
}

TEST(SymmSegment, RefusedFilesLeaveNoMapping) {
  const auto made = Segment::create(kBytes).value();
  const auto count_lines = [] {
    std::ifstream maps("/proc/self/maps");
    return std::count(std::istreambuf_iterator<char>(maps), std::istreambuf_iterator<char>(), '\n');
  };
  const auto before = count_lines();
  constexpr int kTimes = 100;
  for (int i = 0; i < kTimes; ++i)
    (void)Segment::import(duplicate(made->fd()), {kBytes, made->name().cookie + 1});
  // A leak would leave at least one a time; an instrumented allocator maps a few pieces of its own.
  EXPECT_LT(count_lines() - before, kTimes / 4);
}

TEST(SymmSegmentDeathTest, GuardPagesStopOverruns) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  const auto made = Segment::create(4096).value();
  auto* bytes = static_cast<volatile char*>(made->data());
  EXPECT_EXIT(bytes[4096] = 1, ::testing::KilledBySignal(SIGSEGV), "");
  EXPECT_EXIT(bytes[-1] = 1, ::testing::KilledBySignal(SIGSEGV), "");
}

TEST(SymmSegment, TooMuchIsOutOfMemoryWithTheBytes) {
  const std::int64_t much = std::int64_t{1} << 61;
  expect_refused(Segment::create(much), ErrorCode::kOutOfMemory, std::to_string(much) + " bytes asked for");
}

TEST(SymmSegment, FileSizeLimitIsAnErrorNotASignal) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  rlimit tight = before;
  tight.rlim_cur = 1 << 20;  // a page less than with the header
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &tight), 0);
  const auto refused = Segment::create(1 << 20);
  const auto fits = Segment::create(1 << 19);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  expect_refused(refused, ErrorCode::kOutOfMemory,
                 "1052672 bytes asked for, 1048576 available by the file size limit");
  EXPECT_TRUE(fits) << fits.error().to_string();
}

TEST(SymmSegment, ALackOfPagesIsAnError) {
  const int code = testing::exit_code_in_child([] {
    if (!testing::refuse_fallocate()) return 10;
    const auto none = Segment::create(kBytes);
    return !none && none.error().code() == ErrorCode::kOutOfMemory ? 0 : 11;
  });
  EXPECT_EQ(code, 0) << "a later store would be a SIGBUS";
}

}  // namespace
}  // namespace tandem::symm::cpu
