#pragma once

#include <cstdint>

namespace tandem::test {

/// Calls of operator new by this program so far, on any thread. Counted in programs that are built with
/// allocation_count.cpp, which replaces the operators.
[[nodiscard]] std::int64_t num_allocations();

}  // namespace tandem::test
