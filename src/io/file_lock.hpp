#pragma once

#include <chrono>
#include <tandem/base/error.hpp>

namespace tandem::io {

/// Locks an open file against other programs that do so, until it is closed. Another program may hold the
/// lock for ever, so the wait has an end.
/// Errors: kTimeout after `patience`; kDriver.
[[nodiscard]] Result<void> lock_file(int fd, std::chrono::milliseconds patience);

}  // namespace tandem::io
