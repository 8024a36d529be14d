#pragma once

#include <memory>

#include "device/profiler.hpp"

namespace tandem::cuda {

/// The tool to which this process gives NVTX ranges; null if there is none.
[[nodiscard]] std::shared_ptr<Profiler> find_profiler();

}  // namespace tandem::cuda
