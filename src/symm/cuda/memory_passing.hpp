#pragma once

#include <tandem/base/error.hpp>

namespace tandem::symm::cuda {

/// Makes a little symmetric memory on `gpu`, hands it over as a file descriptor and maps it again, as two
/// ranks would. Errors: the first refusal.
[[nodiscard]] Result<void> try_memory_passing(int gpu);

}  // namespace tandem::symm::cuda
