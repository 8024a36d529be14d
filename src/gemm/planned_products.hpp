#pragma once

#include <memory>

#include "gemm/backend.hpp"

namespace tandem::gemm {

/// The products of a Hopper GPU that is not there: native kernels, then cuBLASLt. They are accepted and
/// predicted as on such a GPU, and refuse to run. `multiprocessors`: of the GPU, all for this rank; as many
/// clusters run at one time as fit on them.
[[nodiscard]] std::shared_ptr<Backend> planned_products(int multiprocessors);

}  // namespace tandem::gemm
