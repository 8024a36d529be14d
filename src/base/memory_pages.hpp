#pragma once

#include <cstdint>
#include <string_view>
#include <tandem/base/error.hpp>
#include <tandem/base/unique_fd.hpp>

namespace tandem {

// Memory whose pages are there before it is used. A lack of them is an error here; later it would be a SIGBUS
// or a killed process. Large memory is taken in pieces with a look at the memory limit before each, so that
// ranks that take theirs at the same time see each other's.

/// A file of memory without a name, which takes seals and is closed by exec. Its pages are there, as zeros.
/// `what` begins the texts of errors. Errors: kOutOfMemory with the bytes asked for and available; kDriver.
[[nodiscard]] Result<UniqueFd> create_memory_file(const char* name, std::string_view what,
                                                  std::int64_t num_bytes);

/// Memory that is too small to be looked at by commit_pages().
inline constexpr std::int64_t kFewBytes = std::int64_t{1} << 20;

/// Has the pages of `data`, as malloc() gave it, be there; writes to each of them. Does nothing for less than
/// kFewBytes. Errors: kOutOfMemory as above.
[[nodiscard]] Result<void> commit_pages(std::string_view what, void* data, std::int64_t num_bytes);

/// Memory of malloc's kind, for std::free(), at a multiple of 64, with pages that are there. Errors:
/// kOutOfMemory as above.
[[nodiscard]] Result<void*> allocate_pages(std::string_view what, std::int64_t num_bytes);

}  // namespace tandem
