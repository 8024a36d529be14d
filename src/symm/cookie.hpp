#pragma once

#include <cstdint>
#include <tandem/base/error.hpp>

namespace tandem::symm {

/// A random number that names one piece of memory; see Record.
[[nodiscard]] Result<std::uint64_t> random_cookie();

}  // namespace tandem::symm
