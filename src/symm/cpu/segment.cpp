#include "symm/cpu/segment.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>

#include "base/format.hpp"
#include "base/memory_limit.hpp"
#include "base/memory_pages.hpp"
#include "base/transfer.hpp"
#include "base/try.hpp"
#include "symm/cookie.hpp"

namespace tandem::symm::cpu {
namespace {

constexpr std::uint64_t kSegmentMagic = 0x746d67736d646e74;  // "tndmsgmt"
constexpr std::uint32_t kSegmentVersion = 1;
constexpr std::string_view kWhat = "symmetric memory";
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

std::int64_t page_bytes() {
  static const std::int64_t bytes = ::sysconf(_SC_PAGESIZE);
  return bytes;
}

std::int64_t round_to_pages(std::int64_t num_bytes) {
  return (std::max<std::int64_t>(num_bytes, 1) + page_bytes() - 1) / page_bytes() * page_bytes();
}

std::int64_t file_bytes(std::int64_t num_bytes) {
  return page_bytes() + round_to_pages(num_bytes);
}

tl::unexpected<Error> system_error(const char* call, std::int64_t num_bytes) {
  const int code = errno;
  const bool memory = code == ENOMEM || code == ENOSPC || code == EFBIG || code == EDQUOT;
  return fail(memory ? ErrorCode::kOutOfMemory : ErrorCode::kDriver,
              fmt::format("symmetric memory of {} bytes: {}: {}", num_bytes, call, std::strerror(code)),
              code);
}

Result<void> mark_file(int fd, const SegmentName& name) {
  const SegmentHeader header{kSegmentMagic, kSegmentVersion, 0, name.cookie, name.num_bytes};
  if (!write_at(fd, &header, sizeof(header), 0)) return system_error("pwrite", name.num_bytes);
  if (::fcntl(fd, F_ADD_SEALS, kSeals) != 0) return system_error("fcntl F_ADD_SEALS", name.num_bytes);
  return {};
}

// Everything about a file of unknown origin is checked before a byte of it is mapped.
Result<void> check_file(int fd, const SegmentName& expected) {
  struct stat status {};
  if (::fstat(fd, &status) != 0) return system_error("fstat", expected.num_bytes);
  if (!S_ISREG(status.st_mode)) {
    const char* kind = S_ISFIFO(status.st_mode)   ? "a pipe"
                       : S_ISDIR(status.st_mode)  ? "a directory"
                       : S_ISSOCK(status.st_mode) ? "a socket"
                                                  : "a device";
    return failf(ErrorCode::kInvalidArgument, "the file is {}, need a memory file", kind);
  }
  if (status.st_size != file_bytes(expected.num_bytes)) {
    return failf(ErrorCode::kInvalidArgument, "the file has {} bytes, need {}", status.st_size,
                 file_bytes(expected.num_bytes));
  }
  const int seals = ::fcntl(fd, F_GET_SEALS);
  constexpr int kNeeded = F_SEAL_SHRINK | F_SEAL_GROW;
  if (seals < 0 && errno != EINVAL) return system_error("fcntl F_GET_SEALS", expected.num_bytes);
  if (seals < 0 || (seals & kNeeded) != kNeeded) {  // EINVAL: a file of another kind has none
    return failf(ErrorCode::kInvalidArgument, "the file's seals are {:#x}, need {:#x} (shrink, grow)",
                 seals < 0 ? 0 : seals, kNeeded);
  }
  SegmentHeader header;
  if (!read_at(fd, &header, sizeof(header), 0)) {
    return failf(ErrorCode::kInvalidArgument, "the file's header cannot be read: {}", std::strerror(errno));
  }
  if (header.magic != kSegmentMagic || header.version != kSegmentVersion ||
      header.cookie != expected.cookie || header.num_bytes != expected.num_bytes) {
    return failf(ErrorCode::kInvalidArgument,
                 "the file is other memory: magic {:x} version {} cookie {:x} bytes {}; need {:x} {} {:x} {}",
                 header.magic, header.version, header.cookie, header.num_bytes, kSegmentMagic,
                 kSegmentVersion, expected.cookie, expected.num_bytes);
  }
  return {};
}

}  // namespace

Result<std::shared_ptr<Segment>> Segment::create(std::int64_t num_bytes) {
  TANDEM_TRY(
      check_memory_file(kWhat, num_bytes));  // before addresses are asked for: its error names the limit
  TANDEM_ASSIGN(const std::uint64_t cookie, random_cookie());
  TANDEM_ASSIGN(std::shared_ptr<Segment> segment, reserve(num_bytes));
  TANDEM_TRY(segment->fill(cookie));
  return segment;
}

Result<std::shared_ptr<Segment>> Segment::import(const UniqueFd& fd, const SegmentName& expected) {
  TANDEM_TRY(check_file(fd.get(), expected));
  TANDEM_ASSIGN(std::shared_ptr<Segment> segment, reserve(expected.num_bytes));
  segment->name_ = expected;
  TANDEM_TRY(segment->map(fd.get()));
  return segment;
}

Result<std::shared_ptr<Segment>> Segment::reserve(std::int64_t num_bytes) {
  std::shared_ptr<Segment> segment(new Segment(SegmentName{num_bytes, 0}));
  TANDEM_TRY(segment->reserve_addresses());
  return segment;
}

Result<void> Segment::fill(std::uint64_t cookie) {
  name_.cookie = cookie;
  TANDEM_ASSIGN(fd_, create_memory_file("tandem", kWhat, file_bytes(name_.num_bytes)));
  TANDEM_TRY(mark_file(fd_.get(), name_));
  return map(fd_.get());
}

Result<void> Segment::attach(const UniqueFd& fd, std::uint64_t cookie) {
  TANDEM_TRY(check_file(fd.get(), {name_.num_bytes, cookie}));
  name_.cookie = cookie;
  return map(fd.get());
}

Result<void> Segment::reserve_addresses() {
  region_bytes_ = round_to_pages(name_.num_bytes) + 2 * page_bytes();
  void* region = ::mmap(nullptr, static_cast<std::size_t>(region_bytes_), PROT_NONE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (region == MAP_FAILED) return system_error("mmap", name_.num_bytes);
  region_ = region;
  data_ = static_cast<std::byte*>(region) + page_bytes();
  return {};
}

Result<void> Segment::map(int fd) {
  // Populated now: a first touch costs a fault a page, in the middle of an op.
  const auto num_bytes = static_cast<std::size_t>(round_to_pages(name_.num_bytes));
  if (::mmap(data_, num_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_POPULATE, fd,
             page_bytes()) == MAP_FAILED) {
    return system_error("mmap", name_.num_bytes);
  }
  ::madvise(data_, num_bytes, MADV_DONTFORK);  // a child of fork() holds no memory of the group
  return {};
}

Segment::~Segment() {
  if (region_ != nullptr) ::munmap(region_, static_cast<std::size_t>(region_bytes_));
}

}  // namespace tandem::symm::cpu
