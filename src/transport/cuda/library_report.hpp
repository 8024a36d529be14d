#pragma once

#include <tandem/base/config.hpp>
#include <tandem/base/error.hpp>

#include "base/shared_library.hpp"

namespace tandem::transport::cuda {

/// The NCCL that was loaded, or why none was.
[[nodiscard]] Result<LibraryReport> library_report(const Config& config);

}  // namespace tandem::transport::cuda
