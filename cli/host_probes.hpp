#pragma once

#include <tandem/base/support.hpp>

namespace tandem::cli {

// Each tries what it names, once, and says why it does not work here and what to change.

/// An anonymous shared file of one page, sealed and mapped.
[[nodiscard]] Support probe_sealed_memory();
/// An open file sent through a local socket.
[[nodiscard]] Support probe_fd_passing();
[[nodiscard]] Support probe_futex();
[[nodiscard]] Support probe_pidfd();

}  // namespace tandem::cli
