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
#include "base/try.hpp"
#include "symm/cookie.hpp"
#include "symm/cpu/memory_limit.hpp"

namespace tandem::symm::cpu {
namespace {

constexpr std::uint64_t kSegmentMagic = 0x746d67736d646e74;  // "tndmsgmt"
constexpr std::uint32_t kSegmentVersion = 1;
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

Result<void> fill_file(int fd, const SegmentName& name) {
  // Without it a full machine shows as SIGBUS at a later store.
  while (::fallocate(fd, 0, 0, file_bytes(name.num_bytes)) != 0) {
    if (errno != EINTR) return system_error("fallocate", name.num_bytes);
  }
  const SegmentHeader header{kSegmentMagic, kSegmentVersion, 0, name.cookie, name.num_bytes};
  if (::pwrite(fd, &header, sizeof(header), 0) != sizeof(header))
    return system_error("pwrite", name.num_bytes);
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
  if (seals < 0 || (seals & kNeeded) != kNeeded) {
    return failf(ErrorCode::kInvalidArgument, "the file's seals are {:#x}, need {:#x} (shrink, grow)",
                 seals < 0 ? 0 : seals, kNeeded);
  }
  SegmentHeader header;
  if (::pread(fd, &header, sizeof(header), 0) != sizeof(header)) {
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
  const MemoryLimit limit = memory_limit();
  if (num_bytes > limit.available_bytes - 2 * page_bytes()) {
    return failf(ErrorCode::kOutOfMemory, "symmetric memory: {} bytes asked for, {} available by {}",
                 num_bytes, limit.available_bytes, limit.source);
  }
  TANDEM_ASSIGN(const std::uint64_t cookie, random_cookie());
  std::shared_ptr<Segment> segment(new Segment(SegmentName{num_bytes, cookie}));
  segment->fd_ = UniqueFd(::memfd_create("tandem", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!segment->fd_.valid()) return system_error("memfd_create", num_bytes);
  TANDEM_TRY(fill_file(segment->fd_.get(), segment->name_));
  TANDEM_TRY(segment->map(segment->fd_.get()));
  return segment;
}

Result<std::shared_ptr<Segment>> Segment::import(const UniqueFd& fd, const SegmentName& expected) {
  TANDEM_TRY(check_file(fd.get(), expected));
  std::shared_ptr<Segment> segment(new Segment(expected));
  TANDEM_TRY(segment->map(fd.get()));
  return segment;
}

Result<void> Segment::map(int fd) {
  const std::int64_t data_bytes = round_to_pages(name_.num_bytes);
  region_bytes_ = data_bytes + 2 * page_bytes();
  void* region = ::mmap(nullptr, static_cast<std::size_t>(region_bytes_), PROT_NONE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (region == MAP_FAILED) return system_error("mmap", name_.num_bytes);
  region_ = region;
  void* data = static_cast<std::byte*>(region) + page_bytes();
  // Populated now: a first touch costs a fault a page, in the middle of an op.
  if (::mmap(data, static_cast<std::size_t>(data_bytes), PROT_READ | PROT_WRITE,
             MAP_SHARED | MAP_FIXED | MAP_POPULATE, fd, page_bytes()) == MAP_FAILED) {
    return system_error("mmap", name_.num_bytes);
  }
  data_ = data;
  return {};
}

Segment::~Segment() {
  if (region_ != nullptr) ::munmap(region_, static_cast<std::size_t>(region_bytes_));
}

}  // namespace tandem::symm::cpu
