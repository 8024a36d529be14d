#include "bootstrap/control_memory.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <new>

#include "base/format.hpp"
#include "base/memory_pages.hpp"
#include "base/system_refusal.hpp"
#include "base/try.hpp"

namespace tandem::bootstrap {
namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

constexpr std::size_t header_bytes() {
  return (sizeof(ControlHeader) + 63) / 64 * 64;
}

std::size_t total_bytes(int num_ranks) {
  return header_bytes() + static_cast<std::size_t>(num_ranks) * sizeof(RankArea);
}

Result<UniqueFd> create_sealed_file(std::size_t num_bytes) {
  TANDEM_ASSIGN(UniqueFd file,
                create_memory_file("tandem-control", "control memory", static_cast<std::int64_t>(num_bytes)));
  if (::fcntl(file.get(), F_ADD_SEALS, kSeals) != 0) {
    return fail(ErrorCode::kDriver, fmt::format("control memory: cannot seal: {}", std::strerror(errno)),
                errno);
  }
  return file;
}

}  // namespace

RankArea& ControlMemory::rank(int rank) const {
  auto* areas = reinterpret_cast<RankArea*>(static_cast<std::byte*>(address_) + header_bytes());
  return areas[rank];
}

std::span<std::byte> ControlMemory::bytes() const {
  return {static_cast<std::byte*>(address_), total_bytes(num_ranks_)};
}

Result<ControlMemory::Attachment> ControlMemory::attachment(FunctionRef<Result<Attachment>()> make) {
  const std::lock_guard lock(attachment_mutex_);
  if (attachment_ == nullptr) {
    TANDEM_ASSIGN(attachment_, make());
  }
  return attachment_;
}

Result<std::shared_ptr<ControlMemory>> ControlMemory::map(int fd, int num_ranks) {
  const std::size_t num_bytes = total_bytes(num_ranks);
  const int flags = fd < 0 ? MAP_SHARED | MAP_ANONYMOUS : MAP_SHARED;
  void* const address = ::mmap(nullptr, num_bytes, PROT_READ | PROT_WRITE, flags, fd, 0);
  if (address == MAP_FAILED) {
    return fail(ErrorCode::kOutOfMemory,
                fmt::format("control memory: cannot map {} bytes: {}", num_bytes, std::strerror(errno)),
                errno);
  }
  ::madvise(address, num_bytes, MADV_DONTFORK);  // a child of fork() holds no memory of the group
  return std::shared_ptr<ControlMemory>(new ControlMemory(address, num_ranks));
}

void ControlMemory::initialise(const ControlIdentity& identity, std::span<const ProcessId> processes) {
  auto* created = new (address_) ControlHeader;
  created->identity = identity;
  for (int r = 0; r < num_ranks_; ++r) {
    auto* area = new (&rank(r)) RankArea;
    area->process = processes[static_cast<std::size_t>(r)];
    area->agreed = identity.first_sequence - 1;
    area->posted = identity.first_sequence - 1;
    area->issued = identity.first_sequence - 1;
    area->enqueued = identity.first_sequence - 1;
    for (AgreementSlot& slot : area->slots) slot.sequence = identity.first_sequence - 1;
  }
}

Result<std::shared_ptr<ControlMemory>> ControlMemory::create_for_threads(
    const ControlIdentity& identity, std::span<const ProcessId> processes) {
  TANDEM_ASSIGN(auto memory, map(-1, identity.num_ranks));
  memory->initialise(identity, processes);
  return memory;
}

Result<std::shared_ptr<ControlMemory>> ControlMemory::create_for_processes(
    const ControlIdentity& identity, std::span<const ProcessId> processes, UniqueFd& file) {
  TANDEM_ASSIGN(file, create_sealed_file(total_bytes(identity.num_ranks)));
  TANDEM_ASSIGN(auto memory, map(file.get(), identity.num_ranks));
  memory->initialise(identity, processes);
  return memory;
}

Result<std::shared_ptr<ControlMemory>> ControlMemory::open(UniqueFd file, const ControlIdentity& expected) {
  const auto refuse = [](std::string why) {
    return failf(ErrorCode::kInvalidArgument, "control memory: rank 0 sent a file that is refused: {}", why);
  };
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) return refuse(fmt::format("fstat failed: {}", std::strerror(errno)));
  if (!S_ISREG(status.st_mode))
    return refuse(fmt::format("it is not a memory file (mode {:o})", status.st_mode));
  const auto need_bytes = total_bytes(expected.num_ranks);
  if (static_cast<std::size_t>(status.st_size) != need_bytes) {
    return refuse(
        fmt::format("it has {} bytes, need {} for {} ranks", status.st_size, need_bytes, expected.num_ranks));
  }
  const int seals = ::fcntl(file.get(), F_GET_SEALS);
  if (seals < 0 && errno != EINVAL)
    return tl::unexpected(system_refusal("control memory: the file's seals cannot be read", errno));
  if (seals < 0 || (seals & kSeals) != kSeals)  // EINVAL: a file of another kind has none
    return refuse(fmt::format("it has seals {}, need {}", seals, kSeals));

  TANDEM_ASSIGN(auto memory, map(file.get(), expected.num_ranks));
  const ControlHeader& header = memory->header();
  if (header.magic != ControlHeader::kMagic || header.version != ControlHeader::kVersion) {
    return refuse(fmt::format("magic {:x} version {}, need {:x} version {}", header.magic, header.version,
                              ControlHeader::kMagic, ControlHeader::kVersion));
  }
  if (header.identity.num_ranks != expected.num_ranks || header.identity.nonce != expected.nonce) {
    return refuse(fmt::format("it belongs to another group ({} ranks, nonce {:x}; need {}, {:x})",
                              header.identity.num_ranks, header.identity.nonce, expected.num_ranks,
                              expected.nonce));
  }
  return memory;
}

ControlMemory::~ControlMemory() {
  attachment_.reset();
  ::munmap(address_, total_bytes(num_ranks_));
}

}  // namespace tandem::bootstrap
