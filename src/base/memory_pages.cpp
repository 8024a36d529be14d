#include "base/memory_pages.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <string>

#include "base/format.hpp"
#include "base/function_ref.hpp"
#include "base/memory_limit.hpp"
#include "base/system_refusal.hpp"
#include "base/try.hpp"

namespace tandem {
namespace {

constexpr std::int64_t kMiB = std::int64_t{1} << 20;
/// What large memory leaves for everybody else.
constexpr std::int64_t kSpareBytes = 32 * kMiB;

using TakePiece = FunctionRef<Result<void>(std::int64_t offset, std::int64_t num_bytes)>;

/// Where there is plenty, pieces are large: a look takes 0.1 ms. 64 ranks at once never take more than what
/// is spare beside the rest of one of them.
Result<void> take_in_pieces(std::string_view what, std::int64_t num_bytes, TakePiece take) {
  const std::int64_t need_spare = num_bytes > 8 * kMiB ? kSpareBytes : 0;
  for (std::int64_t done = 0; done < num_bytes;) {
    MemoryLimit limit = memory_limit();
    const std::int64_t left = num_bytes - done;
    const std::int64_t spare = limit.available_bytes - left;
    if (spare < need_spare) {
      limit.available_bytes += done;  // what was taken so far
      return tl::unexpected(out_of_memory(what, num_bytes, limit));
    }
    const std::int64_t piece = std::min(left, std::clamp(spare / 64, 2 * kMiB, 64 * kMiB));
    TANDEM_TRY(take(done, piece));
    done += piece;
  }
  return {};
}

std::string taking(std::string_view what, std::int64_t num_bytes, std::string_view call) {
  return fmt::format("{}: {} bytes asked for: {}", what, num_bytes, call);
}

}  // namespace

Result<UniqueFd> create_memory_file(const char* name, std::string_view what, std::int64_t num_bytes) {
  TANDEM_TRY(check_memory_file(what, num_bytes));
  UniqueFd file(::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file.valid()) return tl::unexpected(system_refusal(taking(what, num_bytes, "memfd_create"), errno));
  TANDEM_TRY(take_in_pieces(what, num_bytes, [&](std::int64_t offset, std::int64_t piece) -> Result<void> {
    int error = EINTR;
    while (error == EINTR) error = ::posix_fallocate(file.get(), offset, piece);
    if (error == 0) return {};
    const std::string call = taking(what, num_bytes, "posix_fallocate");
    if (error != ENOSPC && error != EFBIG && error != EDQUOT)
      return tl::unexpected(system_refusal(call, error));
    return fail(ErrorCode::kOutOfMemory, fmt::format("{}: {}", call, std::strerror(error)), error);
  }));
  return file;
}

Result<void> commit_pages(std::string_view what, void* data, std::int64_t num_bytes) {
  if (num_bytes < kFewBytes) return {};
  static const std::int64_t page_bytes = ::sysconf(_SC_PAGESIZE);
  auto* const bytes = static_cast<volatile std::byte*>(data);
  return take_in_pieces(what, num_bytes, [&](std::int64_t offset, std::int64_t piece) -> Result<void> {
    for (std::int64_t at = offset; at < offset + piece; at += page_bytes) bytes[at] = std::byte{0};
    return {};
  });
}

Result<void*> allocate_pages(std::string_view what, std::int64_t num_bytes) {
  constexpr std::int64_t kAlignment = 64;
  // Before addresses are asked for: its error names the limit.
  if (num_bytes >= kFewBytes) TANDEM_TRY(check_memory(what, num_bytes));
  const std::int64_t rounded = (num_bytes + kAlignment) / kAlignment * kAlignment;
  void* const data =
      std::aligned_alloc(static_cast<std::size_t>(kAlignment), static_cast<std::size_t>(rounded));
  if (data == nullptr) return tl::unexpected(system_refusal(taking(what, num_bytes, "malloc"), ENOMEM));
  if (const auto there = commit_pages(what, data, rounded); !there) {
    std::free(data);
    return tl::unexpected(there.error());
  }
  return data;
}

}  // namespace tandem
